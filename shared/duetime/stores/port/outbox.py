"""The part of the store port with the events of service calls that are not published yet, of all tenants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from duetime.domain.call_events import CallEvent
from duetime.stores.port.calls import CallRef


@dataclass(frozen=True, slots=True)
class OutboxEvent:
    """An event as it is stored."""

    event: CallEvent
    published_at: datetime | None = None


class Outbox(Protocol):
    def unpublished(self, *, limit: int, skip: frozenset[CallRef] = frozenset()) -> list[OutboxEvent]:
        """Events that are not marked as published, of all tenants, the oldest first as far as the store can tell.

        Of one call: in order of ``sequence``, without gaps, beginning with its first unpublished one. ``skip``: calls
        whose events are not wanted now; however many they are, they hide nothing of others.
        """
        ...

    def unpublished_of(self, ref: CallRef, *, limit: int) -> list[OutboxEvent]:
        """Events of one call that are not marked as published, in order of ``sequence``, without gaps, beginning with
        its first unpublished one; strongly consistent, and also when the call is gone."""
        ...

    def mark_published(self, events: Sequence[OutboxEvent], *, now: datetime) -> None:
        """Idempotent: ``published_at`` is set once.

        Where the database removes events by itself, as ``prune`` says otherwise, the event that tells of a star given
        or taken, or of a call's removal, decides when it is marked what becomes of the call's earlier ones.
        """
        ...
