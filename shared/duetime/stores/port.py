"""The store port: every operation that Duetime asks of a database. These docstrings are the contract.

Rules for all operations:

- Synchronous and thread-safe: one store object serves many threads.
- ``now`` is passed in, and callers take it from a clock that ``store_time`` corrects (stores/store_clock.py). A store
  whose database has a clock that conditions can use takes lease and audit times from it instead
  (stores/sql/db_now.py); what is due is always judged by the ``now`` or ``until`` that is passed.
- Losing a race is a return value. Errors are ``StoreUnavailable`` (try again later: unreachable, throttled,
  locked), ``StoreNotReady`` (no tables, wrong schema) and ``StoreError`` (anything else). No driver exception
  leaves a store.
- A batch has no duplicate ids in it, and each of its items succeeds or fails alone; the answer has one
  result per item, in order. An item that the database refuses for good (it is too large, say, or where it belongs is
  full) is REFUSED where the store knows which one it is. Else ``StoreError``, or ``StoreRefused``, is raised for the
  batch, and whoever called asks again with parts of it (stores/refusals.py, engine/batching.py): a store recognises
  what it has stored.
- Expired timers (``Timer.is_expired``) read as absent everywhere, whether or not they are still stored.
- One row that cannot be read harms itself alone. A timer is shown as FAILED with the reason UNREADABLE
  (``timer_check``), a namespace and an API key say so (``unreadable``); a list never ends in an error for them.

``tests/contract`` proves each sentence for each store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from duetime.domain.api_keys import ApiKey
from duetime.domain.idempotency import IdempotencyRecord
from duetime.domain.namespaces import Namespace
from duetime.domain.outcomes import LeasedOutcome, RecordStatus
from duetime.domain.shards import Lease, ShardMap, ShardStatus
from duetime.domain.tenants import DEFAULT_TENANT
from duetime.domain.timers import FailureReason, Rearm, Timer, TimerChange, TimerState
from duetime.stores.moving_port import MovableStore
from duetime.stores.time_source import StoreTime

if TYPE_CHECKING:
    from duetime.stores.calls_port import CallStore

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """``next_cursor`` is None on the last page. A page may be short, even empty, and not be the last."""

    items: list[T]
    next_cursor: str | None = None


class PutMode(StrEnum):
    CREATE = "create"
    """An existing timer stays as it is."""
    REPLACE = "replace"
    """An existing timer, finished or not, becomes the new one with the next revision, unless
    ``domain.timers.repeats``: then it stays as it is."""


class PutStatus(StrEnum):
    CREATED = "created"
    REPLACED = "replaced"
    UNCHANGED = "unchanged"
    """The timer that was found has the same digest."""
    CONFLICT = "conflict"
    """CREATE found a timer with another digest."""
    REVISION_MISMATCH = "revision_mismatch"
    """REPLACE with ``if_revision`` found another revision, or no timer."""
    REFUSED = "refused"
    """The database refuses this timer for good."""


@dataclass(frozen=True, slots=True)
class PutResult:
    """``timer`` as it is stored now; None only when it is REFUSED or ``if_revision`` found none."""

    status: PutStatus
    timer: Timer | None


class ChangeStatus(StrEnum):
    APPLIED = "applied"
    NOT_FOUND = "not_found"
    REVISION_MISMATCH = "revision_mismatch"
    FINISHED = "finished"
    """The timer has fired or failed and cannot be changed."""
    WRONG_STATE = "wrong_state"
    """The timer is in a state from which it cannot be rearmed."""
    UNREADABLE = "unreadable"
    """The stored timer, or its payload, cannot be read, so it cannot be fired either."""
    REFUSED = "refused"
    """The database refuses this change for good."""


@dataclass(frozen=True, slots=True)
class ChangeResult:
    """``timer`` as it is stored now (after an update) or was stored (before a delete).

    None when NOT_FOUND, and for a delete of which the store can tell no more than that its driver sent it twice and
    that the timer is gone: then the first one did it, and its answer was lost.
    """

    status: ChangeStatus
    timer: Timer | None = None

    def attempt_may_be_under_way(self, now: datetime) -> bool:
        """Of a deleted timer, be it known or not."""
        return self.timer is None or self.timer.attempt_may_be_under_way(now)


@dataclass(frozen=True, slots=True)
class TimerRef:
    """A timer of a namespace; with ``if_revision`` only as long as it has that revision."""

    timer_id: str
    if_revision: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerFilter:
    """All given conditions must hold; a time ``from`` is inclusive, a time ``to`` exclusive.

    ``due_from`` and ``due_to`` are about ``content.execute_at``, ``updated_from`` and ``updated_to`` about
    ``updated_at``: for a finished timer, when it ended. ``failure_reason`` is that of the last failed attempt.
    """

    state: TimerState | None = None
    tag: str | None = None
    due_from: datetime | None = None
    due_to: datetime | None = None
    failure_reason: FailureReason | None = None
    updated_from: datetime | None = None
    updated_to: datetime | None = None

    def fits(self, timer: Timer) -> bool:
        """Whether ``timer`` passes; stores say the same in their own words."""
        reason = None if timer.failure is None else timer.failure.reason
        return (
            (self.state is None or timer.state is self.state)
            and (self.tag is None or self.tag in timer.content.tags)
            and (self.failure_reason is None or reason is self.failure_reason)
            and _is_within(timer.content.execute_at, self.due_from, self.due_to)
            and _is_within(timer.updated_at, self.updated_from, self.updated_to)
        )


def _is_within(instant: datetime, start: datetime | None, end: datetime | None) -> bool:
    return (start is None or instant >= start) and (end is None or instant < end)


@dataclass(frozen=True, slots=True)
class UnreadableRow:
    """A stored timer that cannot be decoded. ``key`` is opaque: only the store that made it reads it.

    ``reason`` quotes nothing that the row holds. The name of the timer is None where that cannot be read either.
    """

    shard_id: int
    key: str
    reason: str
    namespace: str | None = None
    timer_id: str | None = None


@dataclass(frozen=True, slots=True)
class DuePage:
    """Timers due by ``until``, by (``next_attempt_at``, then any stable order).

    ``cursor`` is set when there may be more due timers after this page. ``next_attempt_at`` is the earliest
    key of the shard after ``until`` (None when there is none), reported only by a last page (``cursor`` None).
    ``cursor_at``: the instant at which the cursor stands; None: that of the last timer.
    """

    timers: list[Timer]
    cursor: str | None = None
    next_attempt_at: datetime | None = None
    unreadable: tuple[UnreadableRow, ...] = ()
    cursor_at: datetime | None = None


IsWanted = Callable[[str, str], bool]
"""Whether a page should have timers of this namespace to this callback URL."""
LOOKED_AT_PER_TIMER: Final = 10
"""A page with timers that are not wanted looks at so many times its limit at most."""


class Store(MovableStore, Protocol):
    @property
    def calls(self) -> CallStore:
        """The service calls, in the same database."""
        ...

    # -- life ------------------------------------------------------------------------------------------------

    def initialise(self) -> None:
        """Create or migrate tables. Idempotent and safe when several processes start at once."""
        ...

    def check(self) -> None:
        """One cheap round trip. Raises ``StoreUnavailable`` or ``StoreNotReady``."""
        ...

    def close(self) -> None:
        """Release connections. Idempotent."""
        ...

    # -- catalogue -------------------------------------------------------------------------------------------

    def create_namespace(
        self, name: str, *, num_shards: int, dedicated: bool, now: datetime, tenant_id: str = DEFAULT_TENANT
    ) -> tuple[Namespace, bool]:
        """The namespace and whether this call made it. Idempotent.

        Shared namespaces have ``first_shard`` 0; a dedicated one gets a range of its own that never overlaps
        another. ``name`` may be internal (``domain.tenants.internal_namespace``). Raises ``NamespaceConflict`` when
        it exists with another ``num_shards`` or ``dedicated``, or belongs to another tenant: that error tells
        nothing more of it.
        """
        ...

    def get_namespace(self, name: str) -> Namespace | None:
        """Of any tenant, internal ones too: it is for the caller to judge who may see it."""
        ...

    def list_namespaces(self, *, cursor: str | None, limit: int, tenant_id: str | None = None) -> Page[Namespace]:
        """In order of name, without internal ones: those of a tenant, found by its key; None: of all tenants."""
        ...

    def update_namespace(self, namespace: Namespace, *, if_revision: int, now: datetime) -> Namespace | None:
        """Store the ``settings`` and ``secrets`` of ``namespace`` if its stored revision is ``if_revision``.

        The namespace as it is stored now, with the next revision; None when another change came first or there is
        no such namespace. What never changes stays as it is stored, whatever ``namespace`` says.
        """
        ...

    def delete_namespace(self, name: str, *, if_revision: int) -> bool:
        """Remove a namespace, not its timers, if its stored revision is ``if_revision``. True when it is gone, also
        when there was none. Its shards stay: others may have timers there, and a dedicated range is given to no
        other."""
        ...

    def shard_map(self) -> ShardMap:
        """Which shards exist now. One cheap read: pollers ask every second."""
        ...

    def catalogue_secret(self, name: str, candidate: bytes) -> bytes:
        """The secret kept under ``name``; the first caller's ``candidate`` becomes it. For all processes alike."""
        ...

    # -- API keys --------------------------------------------------------------------------------------------

    def create_api_key(self, key: ApiKey) -> bool:
        """Store a new key; False when its id is taken, by whichever tenant, and nothing was stored."""
        ...

    def get_api_key(self, key_id: str) -> ApiKey | None:
        """Strongly consistent. Expired keys too."""
        ...

    def list_api_keys(self, tenant_id: str, *, cursor: str | None, limit: int) -> Page[ApiKey]:
        """In order of id, found by the tenant's key. Expired keys too."""
        ...

    def delete_api_key(self, tenant_id: str, key_id: str) -> bool:
        """False when the tenant has no such key."""
        ...

    # -- idempotency keys ------------------------------------------------------------------------------------

    def put_idempotency_record(
        self, record: IdempotencyRecord, *, if_claim: str | None = None, now: datetime
    ) -> IdempotencyRecord:
        """Store ``record``, atomically, where none is under its key, or one that yields to it.

        ``IdempotencyRecord.yields_to``: one that has expired, or that was written by the same claim or by
        ``if_claim``. What is stored under the key then: ``record``, or the one in the way. Removed some time after
        it has expired, in SQL by ``prune_expired``.
        """
        ...

    # -- clients ---------------------------------------------------------------------------------------------

    def put_timers(
        self,
        timers: Sequence[Timer],
        *,
        mode: PutMode,
        now: datetime,
        if_revision: int | None = None,
    ) -> list[PutResult]:
        """Store first revisions (``domain.timers.new_timer``) as ``mode`` says.

        ``if_revision`` goes with REPLACE and a single timer; it is judged first. A replaced timer keeps
        ``created_at`` and counts its ``revision`` on; every other value is the new one's. An expired timer counts
        as absent.
        """
        ...

    def get_timer(self, namespace: Namespace, timer_id: str, *, now: datetime) -> Timer | None:
        """The timer as it is stored now, strongly consistent; None when there is none."""
        ...

    def update_timer(
        self,
        namespace: Namespace,
        timer_id: str,
        change: TimerChange,
        *,
        firing_id: str,
        now: datetime,
        if_revision: int | None = None,
    ) -> ChangeResult:
        """Apply ``domain.timers.changed`` atomically: no concurrent write is lost or half-seen.

        ``if_revision`` is judged first: a finished timer of another revision is a REVISION_MISMATCH.
        """
        ...

    def rearm_timers(
        self, namespace: Namespace, refs: Sequence[TimerRef], *, rearm: Rearm, now: datetime
    ) -> list[ChangeResult]:
        """Apply ``domain.timers.rearmed`` to each, atomically: the timer is due at ``now``.

        Judged in this order: REVISION_MISMATCH, UNREADABLE, WRONG_STATE. Where ``rearmed`` changes nothing, the
        result is APPLIED and nothing is written. Of several redrives at once, one is APPLIED.
        """
        ...

    def delete_timers(self, namespace: Namespace, refs: Sequence[TimerRef], *, now: datetime) -> list[ChangeResult]:
        """Remove timers in any state. APPLIED carries the timer as it was, where that is known (``ChangeResult``)."""
        ...

    def list_timers(
        self,
        namespace: Namespace,
        timer_filter: TimerFilter,
        *,
        cursor: str | None,
        limit: int,
        now: datetime,
    ) -> Page[Timer]:
        """In the order of shard, then id. A timer that is not changed meanwhile appears exactly once.

        The work of one call is bounded, whatever the filter leaves out, and so is what it holds of payloads
        (``page_budget.PAGE_BYTES``).
        """
        ...

    def find_by_correlation(
        self,
        namespace: Namespace,
        correlation_id: str,
        *,
        cursor: str | None,
        limit: int,
        now: datetime,
    ) -> Page[Timer]:
        """Timers with this correlation id, by an index. May lag a moment behind writes on some stores."""
        ...

    # -- engine ----------------------------------------------------------------------------------------------

    def store_time(self, *, now: datetime) -> StoreTime:
        """What the clock reads that leases are judged by, without waiting for a lock: the database's.

        ``now`` stands for it with ``TimeSource.CALLER``, and where a database tells no time.
        """
        ...

    def shard_statuses(self, shard_ids: Sequence[int], *, now: datetime) -> list[ShardStatus]:
        """One per id, in order; a shard that was never claimed has version 0. The store's clock says what is free."""
        ...

    def claim_shards(
        self, shard_ids: Sequence[int], owner_id: str, *, lease_seconds: float, metadata: str, now: datetime
    ) -> list[Lease | None]:
        """Own those of the shards that nobody's lease is live of: each ``shard_version`` grows by exactly one.

        None where a live lease is in the way (be it the caller's own), or another claim won. ``metadata``: JSON that
        tells of the owner, for people to read. Raises only if nothing was claimed, as far as is known.
        """
        ...

    def renew_leases(self, leases: Sequence[Lease], *, lease_seconds: float, now: datetime) -> list[Lease | None]:
        """Extend to ``now + lease_seconds``. None for a lease whose version or owner is no longer the stored one.

        A lease that has expired but that nobody has claimed since can still be renewed. One that cannot be written
        for now, unlike others, comes back as it was given. Raises only if none was renewed, as far as is known.
        """
        ...

    def release_leases(self, leases: Sequence[Lease], *, now: datetime) -> None:
        """End leases so that they can be claimed at once and never renewed. A stale lease changes nothing."""
        ...

    def announce_worker(self, worker_id: str, *, ttl_seconds: float, now: datetime) -> list[str]:
        """Say that a worker lives up to, not including, ``now + ttl_seconds``; the sorted ids of all that do."""
        ...

    def withdraw_worker(self, worker_id: str) -> None:
        """The worker lives no longer. One that nobody knows changes nothing."""
        ...

    def due_timers(
        self,
        shard_id: int,
        *,
        until: datetime,
        limit: int,
        cursor: str | None = None,
        since: datetime | None = None,
        known_next: datetime | None = None,
        is_wanted: IsWanted | None = None,
    ) -> DuePage:
        """Timers with ``next_attempt_at <= until``, in order, at most ``limit``; strongly consistent.

        More timers at one instant than a page holds are all returned over the pages, once each. Where payloads are
        large, a page holds no more than ``page_budget.PAGE_BYTES`` of them, in memory too.
        ``since`` (not after ``until``) leaves out what has ``next_attempt_at < since``; a ``cursor`` goes
        before it.
        ``known_next``: the caller knows of none before it, so the store may skip looking beyond it; then
        ``DuePage.next_attempt_at`` is the earliest that it found before ``known_next``, else ``known_next``.
        ``is_wanted``: others need not be read whole, and may be left out, so a page may be short and not the last.
        Timers that are parked, or too late by ``until`` (``Timer.is_too_late``), are never left out. It is asked at
        most ``LOOKED_AT_PER_TIMER`` times ``limit``, and by some stores never: they leave nothing out.
        Rows that cannot be decoded are reported in ``unreadable`` and never hide the others.
        """
        ...

    def record(self, outcomes: Sequence[LeasedOutcome], *, now: datetime) -> list[RecordStatus]:
        """Write outcomes, each only onto the attempt that was made.

        That is fenced by the firing, the number of attempts, the state, and that the timer was not made due later
        (``domain.outcomes.reconciled``, for all stores alike): what a client changed about it otherwise stays, and
        the revision counts on. An outcome that is stored already, since the answer of an earlier try was lost, is
        APPLIED, whoever owns the shard now.

        Each is judged by its own ``fence``, whatever leases others of its shard bring: a store with transactions
        checks ``shard_version`` and owner and answers LEASE_LOST; one without (DynamoDB) goes by the attempt alone,
        as every store does for an outcome without a fence.
        ``updated_at`` becomes ``now``.
        """
        ...

    def quarantine(self, rows: Sequence[UnreadableRow], *, now: datetime, expires_at: datetime) -> None:
        """Take unreadable rows out of the due index: they read as FAILED timers with reason UNREADABLE.

        They expire at ``expires_at`` as other failed timers do. Values that cannot be read are shown empty. A row
        that was changed meanwhile stays as it is.
        """
        ...

    def prune_expired(self, *, now: datetime, limit: int) -> int:
        """Delete up to ``limit`` expired timers, and as many expired idempotency records; how many of both.

        0 where the database does it by itself.
        """
        ...
