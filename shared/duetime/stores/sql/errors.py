"""The one place where driver exceptions become Duetime's errors."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy import exc

from duetime.domain.errors import StoreError, StoreUnavailable

logger = logging.getLogger(__name__)


class TransactionAborted(StoreUnavailable):
    """The database ended a transaction, and stored nothing of it, so that others could go on: a deadlock, say."""


Classifier = Callable[[BaseException], StoreError]
"""A dialect's reading of its driver's exceptions."""


@contextmanager
def translated(classify: Classifier) -> Iterator[None]:
    """Turn whatever SQLAlchemy or the driver raises into ``StoreError`` or one of its kinds.

    Messages name the kind of failure and never a statement's values, which belong to the callers.
    """
    try:
        yield
    except exc.TimeoutError as error:
        raise StoreUnavailable("no database connection became free in time") from error
    except exc.DBAPIError as error:
        translation = classify(error.orig if error.orig is not None else error)
        if type(translation) is StoreError:
            logger.error("%s", translation.message, extra={"action": "store.failed"})
        raise translation from error
    except OSError as error:
        # A driver that passes on what its socket raised.
        raise StoreUnavailable(f"the connection to the database failed: {type(error).__name__}") from error
    except UnicodeError as error:
        raise StoreError("a text has no form that the database takes, such as half of a surrogate pair") from error
    except exc.SQLAlchemyError as error:
        raise StoreError(f"the database layer failed: {type(error).__name__}") from error
