"""What the operations of ``core.transfer.TransferStore`` return."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from duetime.stores.port.outbox import OutboxEvent


class LoadStatus(StrEnum):
    LOADED = "loaded"
    PRESENT = "present"
    """It was there already, the same in all that is transferred. Nothing was written."""
    CONFLICT = "conflict"
    """Something else, or something that cannot be read, is there under its key. Nothing was written."""


@dataclass(frozen=True, slots=True)
class UnreadableEvent:
    """A stored event that cannot be decoded, or several that are stored as one. ``reason`` quotes nothing of it.

    ``sequence`` is that of the last of them.
    """

    tenant_id: str
    call_id: str
    sequence: int
    reason: str


@dataclass(frozen=True, slots=True)
class EventPage:
    """``next_cursor`` is None on the last page. A page may be short, even empty, and not be the last."""

    events: list[OutboxEvent]
    next_cursor: str | None = None
    unreadable: tuple[UnreadableEvent, ...] = ()
