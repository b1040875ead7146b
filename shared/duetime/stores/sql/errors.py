"""The one place where driver exceptions become Duetime's errors."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy import exc

from duetime.domain.errors import StoreError, StoreUnavailable

logger = logging.getLogger(__name__)

Classifier = Callable[[BaseException], StoreError | None]
"""A dialect's reading of its driver's exception; None when it says nothing in particular."""


@contextmanager
def translated(classify: Classifier) -> Iterator[None]:
    """Turn whatever SQLAlchemy or the driver raises into ``StoreError`` or one of its kinds.

    Messages name the kind of failure and never the statement's values, which belong to the callers.
    """
    try:
        yield
    except exc.TimeoutError as error:
        raise StoreUnavailable("no database connection became free in time") from error
    except exc.DBAPIError as error:
        raise _from_driver(error, classify) from error
    except exc.SQLAlchemyError as error:
        raise StoreError(f"the database layer failed: {type(error).__name__}") from error


def _from_driver(error: exc.DBAPIError, classify: Classifier) -> StoreError:
    cause = error.orig if error.orig is not None else error
    known = classify(cause)
    if known is not None:
        return known
    if error.connection_invalidated or isinstance(error, exc.OperationalError | exc.InterfaceError):
        return StoreUnavailable(f"the database failed: {cause}")
    logger.error("unexpected database error", extra={"action": "store.error", "error": type(cause).__name__})
    return StoreError(f"the database refused a statement: {type(cause).__name__}")
