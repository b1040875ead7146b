"""The parts of the store port over a store that has all of its operations as methods of its own, under other names.

DynamoDB's is such. This module goes when it is over the core.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # all types are for the type checker alone, and what is imported is cold start
    from collections.abc import Sequence
    from datetime import datetime

    from duetime.domain.api_keys import ApiKey
    from duetime.domain.call_events import CallEvent
    from duetime.domain.call_steps import Transition
    from duetime.domain.executions import Execution
    from duetime.domain.idempotency import IdempotencyRecord
    from duetime.domain.namespaces import Namespace
    from duetime.domain.outcomes import LeasedOutcome, RecordStatus
    from duetime.domain.service_calls import ServiceCall
    from duetime.domain.shards import Lease, ShardMap, ShardStatus
    from duetime.domain.timers import Rearm, Timer, TimerChange
    from duetime.stores.port.calls import ApplyStatus, CallFilter, CallRef, DeleteStatus, EventOf
    from duetime.stores.port.outbox import OutboxEvent
    from duetime.stores.port.pages import Page
    from duetime.stores.port.timers import (
        ChangeResult,
        DuePage,
        IsWanted,
        PutMode,
        PutResult,
        TimerFilter,
        TimerRef,
        UnreadableRow,
    )
    from duetime.stores.port.transfer import EventPage, LoadStatus


class FamilyStore(Protocol):
    """The operations of a store of a family, as ``stores.port`` says."""

    def put_timers(
        self,
        timers: Sequence[Timer],
        *,
        mode: PutMode,
        now: datetime,
        if_revision: int | None = None,
    ) -> list[PutResult]: ...

    def get_timer(self, namespace: Namespace, timer_id: str, *, now: datetime) -> Timer | None: ...

    def update_timer(
        self,
        namespace: Namespace,
        timer_id: str,
        change: TimerChange,
        *,
        firing_id: str,
        now: datetime,
        if_revision: int | None = None,
    ) -> ChangeResult: ...

    def rearm_timers(
        self,
        namespace: Namespace,
        refs: Sequence[TimerRef],
        *,
        rearm: Rearm,
        now: datetime,
        expires_at: datetime | None = None,
    ) -> list[ChangeResult]: ...

    def delete_timers(
        self, namespace: Namespace, refs: Sequence[TimerRef], *, now: datetime
    ) -> list[ChangeResult]: ...

    def list_timers(
        self,
        namespace: Namespace,
        timer_filter: TimerFilter,
        *,
        cursor: str | None,
        limit: int,
        now: datetime,
    ) -> Page[Timer]: ...

    def find_by_correlation(
        self,
        namespace: Namespace,
        correlation_id: str,
        *,
        cursor: str | None,
        limit: int,
        now: datetime,
    ) -> Page[Timer]: ...

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
    ) -> DuePage: ...

    def record(self, outcomes: Sequence[LeasedOutcome], *, now: datetime) -> list[RecordStatus]: ...

    def quarantine(self, rows: Sequence[UnreadableRow], *, now: datetime, expires_at: datetime) -> None: ...

    def prune_expired(self, *, now: datetime, limit: int) -> int: ...

    def shard_statuses(self, shard_ids: Sequence[int], *, now: datetime) -> list[ShardStatus]: ...

    def claim_shards(
        self, shard_ids: Sequence[int], owner_id: str, *, lease_seconds: float, metadata: str, now: datetime
    ) -> list[Lease | None]: ...

    def renew_leases(self, leases: Sequence[Lease], *, lease_seconds: float, now: datetime) -> list[Lease | None]: ...

    def release_leases(self, leases: Sequence[Lease], *, now: datetime) -> None: ...

    def announce_worker(self, worker_id: str, *, ttl_seconds: float, now: datetime) -> list[str]: ...

    def withdraw_worker(self, worker_id: str) -> None: ...

    def create_namespace(
        self, name: str, *, num_shards: int, dedicated: bool, now: datetime, tenant_id: str = ...
    ) -> tuple[Namespace, bool]: ...

    def get_namespace(self, name: str) -> Namespace | None: ...

    def list_namespaces(self, *, cursor: str | None, limit: int, tenant_id: str | None = None) -> Page[Namespace]: ...

    def update_namespace(self, namespace: Namespace, *, if_revision: int, now: datetime) -> Namespace | None: ...

    def delete_namespace(self, name: str, *, if_revision: int) -> bool: ...

    def shard_map(self) -> ShardMap: ...

    def catalogue_secret(self, name: str, candidate: bytes) -> bytes: ...

    def create_api_key(self, key: ApiKey) -> bool: ...

    def get_api_key(self, key_id: str) -> ApiKey | None: ...

    def list_api_keys(self, tenant_id: str, *, cursor: str | None, limit: int) -> Page[ApiKey]: ...

    def delete_api_key(self, tenant_id: str, key_id: str) -> bool: ...

    def put_idempotency_record(
        self, record: IdempotencyRecord, *, if_claim: str | None = None, now: datetime
    ) -> IdempotencyRecord: ...

    def all_namespaces(self, *, cursor: str | None, limit: int) -> Page[Namespace]: ...

    def all_api_keys(self, *, cursor: str | None, limit: int) -> Page[ApiKey]: ...

    def catalogue_secrets(self) -> dict[str, bytes]: ...

    def load_namespace(self, namespace: Namespace) -> tuple[Namespace, LoadStatus]: ...

    def load_timers(self, timers: Sequence[Timer], *, now: datetime) -> list[LoadStatus]: ...


class FamilyCallStore(Protocol):
    """The operations of a store of a family on service calls and their events, as ``stores.port`` says."""

    def apply(self, transitions: Sequence[Transition], *, now: datetime) -> list[ApplyStatus]: ...

    def delete_call(
        self,
        tenant_id: str,
        call_id: str,
        *,
        now: datetime,
        if_revision: int | None = None,
        event: CallEvent | None = None,
    ) -> DeleteStatus: ...

    def get_calls(self, refs: Sequence[CallRef], *, now: datetime) -> list[ServiceCall | None]: ...

    def find_by_idempotency_key(self, tenant_id: str, key: str, *, now: datetime) -> ServiceCall | None: ...

    def list_calls(
        self, tenant_id: str, call_filter: CallFilter, *, cursor: str | None, limit: int, now: datetime
    ) -> Page[ServiceCall]: ...

    def get_execution(self, tenant_id: str, call_id: str, execution_id: str) -> Execution | None: ...

    def list_executions(self, tenant_id: str, call_id: str, *, cursor: str | None, limit: int) -> Page[Execution]: ...

    def list_events(self, tenant_id: str, call_id: str, *, after: int, limit: int) -> list[CallEvent]: ...

    def prune(
        self,
        *,
        now: datetime,
        events_published_before: datetime,
        limit: int,
        event_of: EventOf | None = None,
    ) -> int: ...

    def unpublished_events(self, *, limit: int, skip: frozenset[CallRef] = frozenset()) -> list[OutboxEvent]: ...

    def unpublished_of(self, ref: CallRef, *, limit: int) -> list[OutboxEvent]: ...

    def mark_published(self, events: Sequence[OutboxEvent], *, now: datetime) -> None: ...

    def load_executions(self, executions: Sequence[Execution]) -> list[LoadStatus]: ...

    def all_events(self, *, cursor: str | None, limit: int) -> EventPage: ...

    def load_events(self, events: Sequence[OutboxEvent], *, now: datetime) -> list[LoadStatus]: ...


class FamilyTimers:
    """Implements ``stores.port.timers.TimerStore``."""

    def __init__(self, family: FamilyStore) -> None:
        self.put = family.put_timers
        self.get = family.get_timer
        self.update = family.update_timer
        self.rearm = family.rearm_timers
        self.delete = family.delete_timers
        self.list = family.list_timers
        self.find_by_correlation = family.find_by_correlation
        self.due = family.due_timers
        self.record = family.record
        self.quarantine = family.quarantine
        self.prune = family.prune_expired


class FamilyLeases:
    """Implements ``stores.port.leases.LeaseStore``."""

    def __init__(self, family: FamilyStore) -> None:
        self.statuses = family.shard_statuses
        self.claim = family.claim_shards
        self.renew = family.renew_leases
        self.release = family.release_leases
        self.announce_worker = family.announce_worker
        self.withdraw_worker = family.withdraw_worker


class FamilyCatalogue:
    """Implements ``stores.port.catalogue.Catalogue``."""

    def __init__(self, family: FamilyStore) -> None:
        self.create_namespace = family.create_namespace
        self.get_namespace = family.get_namespace
        self.list_namespaces = family.list_namespaces
        self.update_namespace = family.update_namespace
        self.delete_namespace = family.delete_namespace
        self.shard_map = family.shard_map
        self.secret = family.catalogue_secret
        self.create_api_key = family.create_api_key
        self.get_api_key = family.get_api_key
        self.list_api_keys = family.list_api_keys
        self.delete_api_key = family.delete_api_key
        self.put_idempotency_record = family.put_idempotency_record


class FamilyCalls:
    """Implements ``stores.port.calls.CallStore``."""

    def __init__(self, calls: FamilyCallStore) -> None:
        self.apply = calls.apply
        self.delete = calls.delete_call
        self.get = calls.get_calls
        self.find_by_idempotency_key = calls.find_by_idempotency_key
        self.list = calls.list_calls
        self.get_execution = calls.get_execution
        self.list_executions = calls.list_executions
        self.list_events = calls.list_events
        self.prune = calls.prune


class FamilyOutbox:
    """Implements ``stores.port.outbox.Outbox``."""

    def __init__(self, calls: FamilyCallStore) -> None:
        self.unpublished = calls.unpublished_events
        self.unpublished_of = calls.unpublished_of
        self.mark_published = calls.mark_published


class FamilyTransfer:
    """Implements ``stores.port.transfer.TransferStore``."""

    def __init__(self, family: FamilyStore, calls: FamilyCallStore) -> None:
        self.all_namespaces = family.all_namespaces
        self.all_api_keys = family.all_api_keys
        self.secrets = family.catalogue_secrets
        self.load_namespace = family.load_namespace
        self.load_timers = family.load_timers
        self.load_executions = calls.load_executions
        self.all_events = calls.all_events
        self.load_events = calls.load_events
