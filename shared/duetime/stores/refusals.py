"""One item that a database refuses for good harms itself alone, whatever its batch is to the database.

A refusal is a plain ``StoreError``, or one of its kinds that says what is wrong with the item. While a store cannot
be used at all (``StoreUnavailable``, ``StoreNotReady``), no item is to blame.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from duetime.domain.errors import StoreError, StoreNotReady, StoreUnavailable

log = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")


def alone(write: Callable[[], R], refused: Callable[[StoreError], R]) -> R:
    """Return what ``write`` of one item returns, or what ``refused`` makes of a refusal, which is logged."""
    try:
        return write()
    except (StoreUnavailable, StoreNotReady):
        raise
    except StoreError as error:
        log_refusal(error)
        return refused(error)


def apart(write: Callable[[Sequence[T]], list[R]], items: Sequence[T], refused: Callable[[StoreError], R]) -> list[R]:
    """Return a result per item. A batch that is refused is halved, and halved again, until what is refused stands
    alone.

    ``write`` may have stored some items of a batch that it has refused: written again they must be recognised.
    """
    if not items:
        return []
    if len(items) == 1:
        return alone(lambda: write(items), lambda error: [refused(error)])
    try:
        return write(items)
    except (StoreUnavailable, StoreNotReady):
        raise
    except StoreError:
        middle = len(items) // 2
        return [*apart(write, items[:middle], refused), *apart(write, items[middle:], refused)]


def log_refusal(error: StoreError) -> None:
    log.error("the database refuses an item for good", extra={"action": "store.refused", "error": error.message})
