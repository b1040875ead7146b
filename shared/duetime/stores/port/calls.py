"""The part of the store port with the service calls.

Every operation but ``prune`` is within one tenant, and no operation reads another tenant's rows, whatever its
arguments say. The general rules of ``port.store`` hold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol, TypeAlias

from duetime.domain.call_events import CallEvent
from duetime.domain.call_steps import Transition
from duetime.domain.executions import Execution
from duetime.domain.service_calls import CallStatus, ServiceCall
from duetime.stores.port.pages import Page


class ApplyStatus(StrEnum):
    APPLIED = "applied"
    SUPERSEDED = "superseded"
    """The stored call has another revision than ``before``, or is gone: nothing was written."""
    EXISTS = "exists"
    """``before`` is None and there is a call with this id or this idempotency key: nothing was written."""
    LEASE_LOST = "lease_lost"
    """The call's shard has another owner now: nothing was written."""
    UNAVAILABLE = "unavailable"
    """Where this belongs nothing can be written for now: as far as is known, nothing was written."""


class DeleteStatus(StrEnum):
    DELETED = "deleted"
    NOT_FOUND = "not_found"
    REVISION_MISMATCH = "revision_mismatch"
    RUNNING = "running"
    """A Running call is not removed; nothing was written."""


class CallOrder(StrEnum):
    NEWEST = "newest"
    """By ``call_id``, the newest first; with ``name_prefix`` by name, and the newest first within a name."""
    DUE = "due"
    """By (``due_at``, ``call_id``), the earliest first; only with ``status`` SCHEDULED."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFilter:
    """Conditions that must all hold; ``tags``: every one of them. ``submitted_from`` is inclusive,
    ``submitted_to`` exclusive, both by ``submitted_at``; ``due_to`` is inclusive."""

    status: CallStatus | None = None
    tags: tuple[str, ...] = ()
    submitted_from: datetime | None = None
    submitted_to: datetime | None = None
    due_to: datetime | None = None
    name_prefix: str | None = None
    starred: bool | None = None
    correlation_id: str | None = None
    order: CallOrder = CallOrder.NEWEST


@dataclass(frozen=True, slots=True)
class CallRef:
    tenant_id: str
    call_id: str


EventOf: TypeAlias = Callable[[ServiceCall], CallEvent]
"""Makes the event of a call that is removed."""


class CallStore(Protocol):
    def apply(self, transitions: Sequence[Transition], *, now: datetime) -> list[ApplyStatus]:
        """Store each transition with its executions, its events and the call's timer in one transaction.

        Each succeeds or fails alone; no two are of one call. Each is judged by its own ``fence``, as in
        ``TimerStore.record``. Instants inside the transitions are stored as they are. With ``before`` None a call may
        be in any state. Two with one idempotency key of a tenant: one is APPLIED, the other EXISTS.
        """
        ...

    def delete(
        self,
        tenant_id: str,
        call_id: str,
        *,
        now: datetime,
        if_revision: int | None = None,
        event: CallEvent | None = None,
    ) -> DeleteStatus:
        """Remove a call that is not Running with its timer, tags, idempotency key and executions.

        ``event`` tells of it, with ``if_revision``: it is stored in the transaction that removes the call. Events of
        a call stay until they are published and pruned; ``list_events`` no longer shows them. A store that needs
        several transactions removes the call last, so that a repeat completes the work.
        """
        ...

    def get(self, refs: Sequence[CallRef], *, now: datetime) -> list[ServiceCall | None]:
        """Whole calls, in the order of ``refs``; strongly consistent.

        Raises ``CallUnreadable`` when one of them cannot be decoded: asking for each alone tells which.
        """
        ...

    def find_by_idempotency_key(self, tenant_id: str, key: str, *, now: datetime) -> ServiceCall | None:
        """The call that was submitted with ``key``; strongly consistent."""
        ...

    def get_execution(self, tenant_id: str, call_id: str, execution_id: str) -> Execution | None:
        """Strongly consistent."""
        ...

    def list_executions(
        self, tenant_id: str, call_id: str, *, cursor: str | None, limit: int, with_bodies: bool = True
    ) -> Page[Execution]:
        """The newest first. A cursor of another call is an ``InvalidCursor``.

        ``with_bodies`` False: neither the bodies that were sent nor those that came back are read, only their sizes.
        One execution may have 128 KiB of them.
        """
        ...

    def list_events(self, tenant_id: str, call_id: str, *, after: int, limit: int) -> list[CallEvent]:
        """Events with ``sequence > after`` in order; strongly consistent. Empty when the call is gone."""
        ...

    def prune(
        self,
        *,
        now: datetime,
        events_published_before: datetime,
        limit: int,
        event_of: EventOf | None = None,
    ) -> int:
        """Remove up to ``limit`` rows: events published before that time, and expired calls with all they have.

        Events of a starred call stay, whenever they were published. When it has lost its star, or is gone, they go as
        others do; a store may find that out later, by the time from ``events_published_before`` to ``now`` at most.

        ``event_of`` makes the event of each call that can be read (without the body of its request); it is stored in
        the transaction that removes the call. How many rows of either kind went. No unpublished event is removed.
        """
        ...

    def list(
        self, tenant_id: str, call_filter: CallFilter, *, cursor: str | None, limit: int, now: datetime
    ) -> Page[ServiceCall]:
        """Calls without the body of their request (``RequestSpec.without_body``), as ``CallFilter.order`` says.

        By an index; the work of one call is bounded, whatever the filter leaves out, so a page may be short and not
        the last. A call that is not changed meanwhile appears exactly once. May lag a moment behind writes on some
        stores, except without any condition but the dates. A cursor of another tenant or another filter is an
        ``InvalidCursor``. A call that cannot be decoded is shown as FAILED with the reason UNREADABLE and without
        what cannot be read.
        """
        ...
