"""Namespaces: named sets of timers, the shards that these are on, and how a namespace gets others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import chain

from duetime.domain.calendars import Calendar
from duetime.domain.errors import NamespaceResharding
from duetime.domain.event_webhooks import EventWebhook
from duetime.domain.retry import DEFAULT_RETRY_POLICY, RetryPolicy, policy_in_force
from duetime.domain.shards import MAX_SHARED_SHARDS, shard_index
from duetime.domain.tenants import DEFAULT_TENANT

DEFAULT_NUM_SHARDS = 16
MAX_NUM_SHARDS = MAX_SHARED_SHARDS
NAMESPACE_SECONDS = 10.0
"""For how long a process may go by what it has read of a namespace: pollers as well as the API."""
NAMESPACE_KEPT: timedelta = timedelta(seconds=15)
"""For how long it may at the most, while the store does not tell it anew."""
DELETION_SETTLED: timedelta = timedelta(seconds=20)
"""So long after a deletion began, no process still creates timers: longer than ``NAMESPACE_KEPT``, by a request."""
RESHARD_AFTER: timedelta = timedelta(seconds=120)
"""How long after a reshard new timers go to the new shards: longer than ``NAMESPACE_KEPT`` and ``RESHARD_PAUSE``."""
RESHARD_PAUSE: timedelta = timedelta(seconds=20)
"""So long before that, nothing is created whose shard changes. It covers the longest request and the difference of
clocks."""
MAX_EARLIER_SHARDS = 8
"""How often a namespace can be resharded: a timer is looked for in that many shards more."""


class NamespaceState(StrEnum):
    ACTIVE = "Active"
    PAUSED = "Paused"
    """Timers are created and changed as ever, and wait; none is fired."""
    DELETING = "Deleting"
    """Timers are being removed; none is fired, and none can be created."""


class Misfire(StrEnum):
    """What a resume does with timers that came due while their namespace was paused."""

    FIRE = "fire"
    EXPIRE = "expire"
    """They fail with the reason ``expired``."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Since when nothing is fired, and why: in the words of whoever paused it."""

    at: datetime
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceSettings:
    """The settings of a namespace that can be changed; None: the default applies.

    ``retry_policy_json`` (as in ``domain.retry``) is for timers without a policy of their own. ``max_in_flight``
    callbacks may be in flight at once and ``rate_limit_per_second`` attempts be started, by all pollers together.
    ``webhook`` is where a tenant's events go: only its internal namespace for them has one. ``calendars``, in order
    of name, are those of a tenant: only ``domain.calendars.days_namespace`` has some. Schedules that occur more often
    than each ``min_schedule_interval_ms`` are refused. ``resumed_at``: when the
    last pause ended. ``deleting_since``: when its deletion began. ``unknown_json`` is what
    a newer version has stored beside them, a JSON object: it is kept as it is.
    """

    retry_policy_json: str | None = None
    max_in_flight: int | None = None
    rate_limit_per_second: float | None = None
    webhook: EventWebhook | None = None
    calendars: tuple[Calendar, ...] = ()
    min_schedule_interval_ms: int | None = None
    misfire: Misfire | None = None
    pause: Pause | None = None
    resumed_at: datetime | None = None
    deleting_since: datetime | None = None
    unknown_json: str | None = None

    @property
    def retry_policy(self) -> RetryPolicy:
        """Return the policy of timers without their own."""
        return policy_in_force(self.retry_policy_json, DEFAULT_RETRY_POLICY)


@dataclass(frozen=True, slots=True)
class EncryptedSecret:
    """A signing secret as it is stored: ``ciphertext`` can be read with the deployment's key alone.

    ``expires_at`` None: valid until it is replaced or deleted.
    """

    secret_id: str
    ciphertext: bytes = field(repr=False)
    created_at: datetime
    expires_at: datetime | None = None

    def is_valid(self, now: datetime) -> bool:
        return self.expires_at is None or now < self.expires_at


@dataclass(frozen=True, slots=True)
class EarlierShards:
    """The shards to which new timers of a namespace went until ``until``. Those that are there stay there."""

    num_shards: int
    first_shard: int
    until: datetime

    def shard_of(self, timer_id: str) -> int:
        return self.first_shard + shard_index(timer_id, self.num_shards)


@dataclass(frozen=True, slots=True)
class Namespace:
    """``dedicated`` and ``tenant_id`` never change after creation; ``num_shards`` and ``first_shard`` by a reshard.

    ``earlier_shards``, the oldest first, are those that it had before; the last of them are in force up to their
    ``until``. ``revision`` counts changes of ``settings``, ``secrets`` and shards from 1. ``unreadable`` tells why
    what is stored of it cannot be read, and quotes nothing of it: such a namespace has neither settings nor secrets,
    and no shards where those cannot be read either.
    """

    name: str
    num_shards: int
    first_shard: int
    dedicated: bool
    created_at: datetime
    settings: NamespaceSettings = NamespaceSettings()
    secrets: tuple[EncryptedSecret, ...] = ()
    revision: int = 1
    tenant_id: str = DEFAULT_TENANT
    unreadable: str | None = None
    earlier_shards: tuple[EarlierShards, ...] = ()

    @property
    def state(self) -> NamespaceState:
        if self.settings.deleting_since is not None:
            return NamespaceState.DELETING
        return NamespaceState.ACTIVE if self.settings.pause is None else NamespaceState.PAUSED

    def as_created(self) -> Namespace:
        """Return the part of an internal namespace that never changes, which may be cached for ever."""
        return replace(self, settings=NamespaceSettings(), secrets=(), revision=1, unreadable=None)

    def is_resharding(self, now: datetime) -> bool:
        """Tell whether new timers still go to the earlier shards."""
        return bool(self.earlier_shards) and now < self.earlier_shards[-1].until

    def shard_of(self, timer_id: str) -> int:
        """Return the shard of a new timer, but for one that ``is_resharding``."""
        return self.first_shard + shard_index(timer_id, self.num_shards)

    def shards_of(self, timer_id: str, now: datetime) -> Sequence[int]:
        """Return the shards that a timer may be on: first the one on which it is created ``now``.

        On the others none is created any more. So one that is not there will not be, and one that is there keeps its
        place until its row is gone.
        """
        newest = self.shard_of(timer_id)
        if not self.earlier_shards:
            return (newest,)
        shards = [each.shard_of(timer_id) for each in self.earlier_shards]
        first = shards[-1] if self.is_resharding(now) else newest
        return (*dict.fromkeys((first, newest, *reversed(shards))),)

    def shards_of_new(self, timer_id: str, now: datetime) -> Sequence[int]:
        """Return ``shards_of``. Raises ``NamespaceResharding`` shortly before the first of them becomes another."""
        if self.is_resharding(now):
            last = self.earlier_shards[-1]
            left = last.until - now
            if left <= RESHARD_PAUSE and last.shard_of(timer_id) != self.shard_of(timer_id):
                raise NamespaceResharding(self.name, retry_after_seconds=left.total_seconds())
        return self.shards_of(timer_id, now)

    def shard_ranges(self) -> list[range]:
        """Return the shards with timers of it, earlier ones too: in order, and none twice."""
        parts = [(self.first_shard, self.num_shards)]
        parts += ((each.first_shard, each.num_shards) for each in self.earlier_shards)
        ranges: list[range] = []
        for first, count in sorted(parts):
            if ranges and first <= ranges[-1].stop:
                ranges[-1] = range(ranges[-1].start, max(ranges[-1].stop, first + count))
            else:
                ranges.append(range(first, first + count))
        return ranges

    def shard_ids(self) -> Sequence[int]:
        """Return the shards of ``shard_ranges``."""
        ranges = self.shard_ranges()
        return ranges[0] if len(ranges) == 1 else (*chain(*ranges),)
