"""The one place where driver exceptions become Duetime's errors."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy import exc

from duetime.domain.errors import StoreError, StoreNotReady, StoreUnavailable

logger = logging.getLogger(__name__)


class TransactionAborted(StoreUnavailable):
    """The database ended a transaction, and stored nothing of it, so that others could go on: a deadlock, say."""


def by_code(reasons: Mapping[str, Iterable[int]]) -> dict[int, str]:
    """The reason for each of a driver's codes, from the codes of each reason."""
    return {code: reason for reason, codes in reasons.items() for code in codes}


@dataclass(frozen=True, slots=True)
class ErrorCodes:
    """What the codes of a driver's errors mean, as its database's documentation has them."""

    aborted: Mapping[int, str]
    """In favour of another transaction: by what."""
    try_again: Mapping[int, str]
    """What is in the way for now."""
    refused: Mapping[int, str]
    """What the server does with the user, or has not."""
    no_schema: frozenset[int]

    def meaning(self, code: int, where: str) -> StoreError | None:
        """None for a code that has none here. ``where`` names the server and the database."""
        if code in self.aborted:
            return TransactionAborted(f"the database asks to try again: {self.aborted[code]}")
        if code in self.try_again:
            return StoreUnavailable(f"the database asks to try again: {self.try_again[code]}")
        if code in self.no_schema:
            return StoreNotReady("the database has no Duetime schema of this version; `duetime init` makes it")
        if code in self.refused:
            return StoreUnavailable(f"the server of {where} {self.refused[code]}")
        return None


Classifier = Callable[[BaseException], StoreError]
"""A dialect's reading of its driver's exceptions."""


@contextmanager
def translated(classify: Classifier, *driver_errors: type[Exception]) -> Iterator[None]:
    """Turn whatever SQLAlchemy or the driver raises into ``StoreError`` or one of its kinds.

    Messages name the kind of failure and never a statement's values, which belong to the callers. ``driver_errors``:
    those of a driver that is used without SQLAlchemy.
    """
    try:
        yield
    except exc.TimeoutError as error:
        raise StoreUnavailable("no database connection became free in time") from error
    except exc.DBAPIError as error:
        raise _translation(classify, error.orig if error.orig is not None else error) from error
    except driver_errors as error:
        raise _translation(classify, error) from error
    except OSError as error:
        # A driver that passes on what its socket raised.
        raise StoreUnavailable(f"the connection to the database failed: {type(error).__name__}") from error
    except UnicodeError as error:
        raise StoreError("a text has no form that the database takes, such as half of a surrogate pair") from error
    except exc.SQLAlchemyError as error:
        raise StoreError(f"the database layer failed: {type(error).__name__}") from error


def _translation(classify: Classifier, error: BaseException) -> StoreError:
    translation = classify(error)
    if type(translation) is StoreError:
        logger.error("%s", translation.message, extra={"action": "store.failed"})
    return translation
