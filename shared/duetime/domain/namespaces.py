"""Namespaces: named sets of timers with a fixed number of shards."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from duetime.domain.calendars import Calendar
from duetime.domain.event_webhooks import EventWebhook
from duetime.domain.retry import DEFAULT_RETRY_POLICY, RetryPolicy, policy_in_force
from duetime.domain.shards import MAX_SHARED_SHARDS, shard_index
from duetime.domain.tenants import DEFAULT_TENANT

DEFAULT_NUM_SHARDS = 16
MAX_NUM_SHARDS = MAX_SHARED_SHARDS
NAMESPACE_SECONDS = 10.0
"""For how long a process may go by what it has read of a namespace: pollers as well as the API."""


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
class Namespace:
    """``num_shards``, ``first_shard``, ``dedicated`` and ``tenant_id`` never change after creation.

    ``revision`` counts changes of ``settings`` and ``secrets`` from 1. ``unreadable`` tells why what is stored of it
    cannot be read, and quotes nothing of it: such a namespace has neither settings nor secrets, and no shards where
    those cannot be read either.
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

    @property
    def state(self) -> NamespaceState:
        if self.settings.deleting_since is not None:
            return NamespaceState.DELETING
        return NamespaceState.ACTIVE if self.settings.pause is None else NamespaceState.PAUSED

    def as_created(self) -> Namespace:
        """Return the part that never changes, which may be cached for ever."""
        return replace(self, settings=NamespaceSettings(), secrets=(), revision=1, unreadable=None)

    def shard_of(self, timer_id: str) -> int:
        return self.first_shard + shard_index(timer_id, self.num_shards)

    def shard_ids(self) -> range:
        return range(self.first_shard, self.first_shard + self.num_shards)
