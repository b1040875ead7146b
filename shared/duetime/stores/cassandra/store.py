"""The store on Cassandra: its parts, put together."""

from __future__ import annotations

from datetime import datetime

from duetime.domain.namespaces import Namespace
from duetime.domain.service_calls import tenant_of
from duetime.domain.timers import Timer
from duetime.stores.cassandra import schema
from duetime.stores.cassandra.api_keys import ApiKeys
from duetime.stores.cassandra.calls.store import CassandraCallStore
from duetime.stores.cassandra.catalogue import Catalogue
from duetime.stores.cassandra.clients import Clients
from duetime.stores.cassandra.due import Due
from duetime.stores.cassandra.idempotency import IdempotencyRecords
from duetime.stores.cassandra.leases import Leases
from duetime.stores.cassandra.lists import Lists
from duetime.stores.cassandra.merged_due import MergedDue
from duetime.stores.cassandra.recording import Recording
from duetime.stores.cassandra.session import CassandraSession
from duetime.stores.cassandra.timers import Timers
from duetime.stores.cassandra.url import parse_cassandra_url
from duetime.stores.family_parts import (
    FamilyCalls,
    FamilyCatalogue,
    FamilyLeases,
    FamilyOutbox,
    FamilyTimers,
    FamilyTransfer,
)
from duetime.stores.port.calls import CallRef
from duetime.stores.time_source import StoreTime, TimeSource


def open_cassandra_store(url: str, *, time_source: TimeSource = TimeSource.DATABASE) -> CassandraStore:
    """Nothing is contacted yet. Raises ``InvalidSettings`` for a URL that cannot be understood."""
    return CassandraStore(CassandraSession(parse_cassandra_url(url)), time_source=time_source)


class CassandraStore:
    """Implements ``duetime.stores.port.store.Store``; each part has the operations of one side of it."""

    def __init__(self, session: CassandraSession, *, time_source: TimeSource = TimeSource.DATABASE) -> None:
        self.session = session
        self._time_source = time_source

        catalogue = Catalogue(session)
        self.create_namespace = catalogue.create_namespace
        self.get_namespace = catalogue.get_namespace
        self.list_namespaces = catalogue.list_namespaces
        self.update_namespace = catalogue.update_namespace
        self.delete_namespace = catalogue.delete_namespace
        self.shard_map = catalogue.shard_map
        self.catalogue_secret = catalogue.catalogue_secret
        self.catalogue_secrets = catalogue.catalogue_secrets
        self.all_namespaces = catalogue.all_namespaces
        self.load_namespace = catalogue.load_namespace

        api_keys = ApiKeys(session)
        self.create_api_key = api_keys.create_api_key
        self.get_api_key = api_keys.get_api_key
        self.list_api_keys = api_keys.list_api_keys
        self.delete_api_key = api_keys.delete_api_key
        self.all_api_keys = api_keys.all_api_keys

        self.put_idempotency_record = IdempotencyRecords(session).put_idempotency_record

        timers = Timers(session)
        clients = Clients(timers)
        self.put_timers = clients.put_timers
        self._clients = clients
        self.update_timer = clients.update_timer
        self.rearm_timers = clients.rearm_timers
        self.delete_timers = clients.delete_timers
        self.load_timers = clients.load_timers

        lists = Lists(session, timers)
        self.list_timers = lists.list_timers
        self.find_by_correlation = lists.find_by_correlation

        leases = Leases(session)
        self.shard_statuses = leases.shard_statuses
        self.claim_shards = leases.claim_shards
        self.renew_leases = leases.renew_leases
        self.release_leases = leases.release_leases
        self.announce_worker = leases.announce_worker
        self.withdraw_worker = leases.withdraw_worker

        recording = Recording(session, timers)
        self.record = recording.record
        self.prune_expired = recording.prune_expired

        self._calls = CassandraCallStore(session, lost_leases=recording.lost_leases)

        due = Due(session, timers)
        self.due_timers = MergedDue([due, self._calls.due]).due_timers
        self.quarantine = due.quarantine

        self.timers = FamilyTimers(self)
        self.leases = FamilyLeases(self)
        self.catalogue = FamilyCatalogue(self)
        self.calls = FamilyCalls(self._calls)
        self.outbox = FamilyOutbox(self._calls)
        self.transfer = FamilyTransfer(self, self._calls)

    def get_timer(self, namespace: Namespace, timer_id: str, *, now: datetime) -> Timer | None:
        tenant_id = tenant_of(namespace.name)
        if tenant_id is None:
            return self._clients.get_timer(namespace, timer_id, now=now)
        return self._calls.due.get_timer(CallRef(tenant_id, timer_id), now=now)

    def time(self, *, now: datetime) -> StoreTime:
        at = self.session.node_time() if self._time_source is TimeSource.DATABASE else now
        return StoreTime(at, resolution_seconds=0.001)

    def initialise(self) -> None:
        schema.initialise(self.session)

    def check(self) -> None:
        schema.check(self.session)

    def close(self) -> None:
        self._calls.close()
        self.session.close()
