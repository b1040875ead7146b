"""The one place where driver exceptions become Duetime's errors."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from sqlalchemy import exc

from duetime.domain.errors import StoreError, StoreNotReady, StoreUnavailable

logger = logging.getLogger(__name__)


class TransactionAborted(StoreUnavailable):
    """The database ended a transaction, and stored nothing of it, so that others could go on: a deadlock, say."""


def by_code(reasons: Mapping[str, Iterable[int]]) -> dict[int, str]:
    """Return the reason for each of a driver's codes, from the codes of each reason."""
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
        """Return what a code means; None where it has none here. ``where`` names the server and the database."""
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


def translation(
    classify: Classifier, error: BaseException, driver_errors: tuple[type[Exception], ...] = ()
) -> StoreError | None:
    """Return ``StoreError`` or one of its kinds, for whatever SQLAlchemy or the driver raises. None: it is not
    theirs.

    Messages name the kind of failure and never a statement's values, which belong to the callers. ``driver_errors``:
    those of a driver that is used without SQLAlchemy.
    """
    if isinstance(error, exc.TimeoutError):
        return StoreUnavailable("no database connection became free in time")
    if isinstance(error, exc.DBAPIError):
        return _translation(classify, error.orig if error.orig is not None else error)
    if isinstance(error, driver_errors):
        return _translation(classify, error)
    if isinstance(error, OSError):
        # A driver that passes on what its socket raised.
        return StoreUnavailable(f"the connection to the database failed: {type(error).__name__}")
    if isinstance(error, UnicodeError):
        return StoreError("a text has no form that the database takes, such as half of a surrogate pair")
    if isinstance(error, exc.SQLAlchemyError):
        return StoreError(f"the database layer failed: {type(error).__name__}")
    return None


def _translation(classify: Classifier, error: BaseException) -> StoreError:
    translated = classify(error)
    if type(translated) is StoreError:
        logger.error("%s", translated.message, extra={"action": "store.failed"})
    return translated
