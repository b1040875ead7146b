"""Events that cannot be read: what the stores have alike."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

logger = logging.getLogger(__name__)

R = TypeVar("R")
E = TypeVar("E")


class UnreadableEventError(Exception):
    """A stored event does not decode. The message names the kind of fault, never the value."""


def up_to_damage(
    rows: Iterable[R], decode: Callable[[R], E], report: Callable[[R, UnreadableEventError], None]
) -> Iterator[E]:
    """The events of ``rows``, which are of one call in order, up to the first that cannot be read.

    Those behind it have to wait, or their order would be lost; other calls' events need not.
    """
    for row in rows:
        try:
            yield decode(row)
        except UnreadableEventError as error:
            report(row, error)
            return


def report_unreadable(error: UnreadableEventError, *, tenant_id: str, call_id: str, sequence: int) -> None:
    where = {"tenant_id": tenant_id, "call_id": call_id, "sequence": sequence}
    logger.error("%s", error, extra={"action": "outbox.unreadable", **where})
