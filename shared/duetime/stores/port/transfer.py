"""The part of the store port that a transfer from one store to another uses.

These operations read all there is, of all tenants, and they store what another store held exactly as it was: every
revision, state, time, hash and encrypted secret. Nothing is made anew but what a database allots itself: the shards
of a dedicated namespace.

What is loaded is never written over what is there: ``LoadStatus`` tells whether that is the same. So loading the same
again changes nothing, and a load that was cut short is completed by a repeat.

The caller makes sure that neither database is served meanwhile. Service calls need no operation of their own:
``CallStore.apply`` stores one in any state with ``before`` None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from duetime.domain.api_keys import ApiKey
from duetime.domain.executions import Execution
from duetime.domain.namespaces import Namespace
from duetime.domain.occurrences import PastOccurrence
from duetime.domain.timers import Timer
from duetime.stores.port.outbox import OutboxEvent
from duetime.stores.port.pages import Page


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


class TransferStore(Protocol):
    def all_namespaces(self, *, cursor: str | None, limit: int) -> Page[Namespace]:
        """Of all tenants, internal ones too, in any stable order; each once."""
        ...

    def all_api_keys(self, *, cursor: str | None, limit: int) -> Page[ApiKey]:
        """Of all tenants, expired ones too, in any stable order; each once.

        ``Catalogue.create_api_key`` loads one.
        """
        ...

    def secrets(self) -> Mapping[str, bytes | None]:
        """All secrets that ``Catalogue.secret`` keeps, by name: a handful. That operation loads one.

        None: the stored secret cannot be read.
        """
        ...

    def load_namespace(self, namespace: Namespace) -> tuple[Namespace, LoadStatus]:
        """Store ``namespace`` as it is, but for ``first_shard``: a dedicated one gets a fresh range.

        The namespace as it is stored now. PRESENT when that is equal to ``namespace`` in all but ``first_shard``. The
        shard map counts its shards, as after ``Catalogue.create_namespace``. Raises what that does when shards run
        out.
        """
        ...

    def load_timers(self, timers: Sequence[Timer], *, now: datetime) -> list[LoadStatus]:
        """Store ``timers`` as they are, in any state: due, waiting, parked, finished.

        ``shard_id`` is by the namespace that this store has. PRESENT when the stored timer is equal. An expired timer
        counts as absent. None of ``timers`` has expired.
        """
        ...

    def load_occurrences(self, occurrences: Sequence[PastOccurrence]) -> list[LoadStatus]:
        """Store lines of histories as they are. No two are in each other's place."""
        ...

    def load_executions(self, executions: Sequence[Execution]) -> list[LoadStatus]:
        """Store ``executions`` as they are. Their calls are there."""
        ...

    def all_events(self, *, cursor: str | None, limit: int) -> EventPage:
        """Every stored event, published or not, of all tenants, removed calls' too.

        Those of one call stand together, in order of ``sequence``. What cannot be decoded is in ``unreadable`` and
        hides nothing. A page has about ``limit``.
        """
        ...

    def load_events(self, events: Sequence[OutboxEvent], *, now: datetime) -> list[LoadStatus]:
        """Store ``events`` with their ``published_at``. Those of one call are in order, and one call's are loaded
        before the next one's.

        Unpublished ones are then handed out by ``Outbox.unpublished``. Published ones are kept as long as any from
        then on; a store that removes them by a time to live counts it from ``now``.
        """
        ...
