"""The store on SQL databases: its parts, put together."""

from __future__ import annotations

from datetime import datetime

from duetime.stores.family_parts import (
    FamilyCalls,
    FamilyCatalogue,
    FamilyLeases,
    FamilyOutbox,
    FamilyTimers,
    FamilyTransfer,
)
from duetime.stores.sql.api_keys import ApiKeys
from duetime.stores.sql.call_store import SqlCallStore
from duetime.stores.sql.catalogue import Catalogue
from duetime.stores.sql.clients import Clients
from duetime.stores.sql.database import Database
from duetime.stores.sql.dialects import SqlDialect
from duetime.stores.sql.due import Due
from duetime.stores.sql.idempotency import IdempotencyRecords
from duetime.stores.sql.leases import Leases
from duetime.stores.sql.lists import Lists
from duetime.stores.sql.recording import Recording
from duetime.stores.sql.restarting import restarted
from duetime.stores.sql.timer_loading import TimerLoading
from duetime.stores.sql.timer_rows import TimerRows
from duetime.stores.time_source import TimeSource


class SqlStore:
    """Implements ``duetime.stores.port.store.Store``; each part has the operations of one side of it."""

    def __init__(self, dialect: SqlDialect, *, time_source: TimeSource = TimeSource.DATABASE) -> None:
        self.database = Database(dialect, time_source=time_source)
        self.initialise = self.database.initialise
        self.check = self.database.check
        self.close = self.database.close
        self.time = self.database.store_time

        catalogue = Catalogue(self.database)
        self.create_namespace = restarted(catalogue.create_namespace)
        self.get_namespace = catalogue.get_namespace
        self.list_namespaces = catalogue.list_namespaces
        self.update_namespace = restarted(catalogue.update_namespace)
        self.delete_namespace = restarted(catalogue.delete_namespace)
        self.shard_map = catalogue.shard_map
        self.catalogue_secret = restarted(catalogue.catalogue_secret)
        self.catalogue_secrets = catalogue.catalogue_secrets
        self.all_namespaces = catalogue.all_namespaces
        self.load_namespace = restarted(catalogue.load_namespace)

        api_keys = ApiKeys(self.database)
        self.create_api_key = restarted(api_keys.create_api_key)
        self.get_api_key = api_keys.get_api_key
        self.list_api_keys = api_keys.list_api_keys
        self.delete_api_key = restarted(api_keys.delete_api_key)
        self.all_api_keys = api_keys.all_api_keys

        rows = TimerRows(self.database)
        clients = Clients(self.database, rows)
        self.put_timers = restarted(clients.put_timers)
        self.get_timer = clients.get_timer
        self.update_timer = restarted(clients.update_timer)
        self.rearm_timers = restarted(clients.rearm_timers)
        self.delete_timers = restarted(clients.delete_timers)

        self.load_timers = restarted(TimerLoading(self.database, rows).load_timers)

        lists = Lists(self.database, rows)
        self.list_timers = lists.list_timers
        self.find_by_correlation = lists.find_by_correlation

        leases = Leases(self.database)
        self.shard_statuses = leases.shard_statuses
        self.claim_shards = restarted(leases.claim_shards)
        self.renew_leases = restarted(leases.renew_leases)
        self.release_leases = restarted(leases.release_leases)
        self.announce_worker = restarted(leases.announce_worker)
        self.withdraw_worker = restarted(leases.withdraw_worker)

        due = Due(self.database, rows)
        self.due_timers = due.due_timers
        self.quarantine = restarted(due.quarantine)

        recording = Recording(self.database, rows)
        self.record = restarted(recording.record)
        self._prune_timers = restarted(recording.prune_expired)

        idempotency = IdempotencyRecords(self.database)
        self.put_idempotency_record = restarted(idempotency.put_idempotency_record)
        self._prune_records = restarted(idempotency.prune)

        self.timers = FamilyTimers(self)
        self.leases = FamilyLeases(self)
        self.catalogue = FamilyCatalogue(self)
        calls = SqlCallStore(self.database)
        self.calls = FamilyCalls(calls)
        self.outbox = FamilyOutbox(calls)
        self.transfer = FamilyTransfer(self, calls)

    def prune_expired(self, *, now: datetime, limit: int) -> int:
        return self._prune_timers(now=now, limit=limit) + self._prune_records(now=now, limit=limit)
