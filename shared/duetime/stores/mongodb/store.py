"""The store on MongoDB: its parts, put together.

Run against a stand-in of one member: not against MongoDB, a replica set of several members or a sharded cluster
(docs/stores/mongodb.md).
"""

from __future__ import annotations

from datetime import datetime

from pymongo import MongoClient

from duetime.stores.family_parts import (
    FamilyCalls,
    FamilyCatalogue,
    FamilyLeases,
    FamilyOutbox,
    FamilyTimers,
    FamilyTransfer,
)
from duetime.stores.mongodb import schema
from duetime.stores.mongodb.api_keys import ApiKeys
from duetime.stores.mongodb.call_store import MongoDbCallStore
from duetime.stores.mongodb.catalogue import Catalogue
from duetime.stores.mongodb.clients import Clients
from duetime.stores.mongodb.database import Database
from duetime.stores.mongodb.due import Due
from duetime.stores.mongodb.errors import translated
from duetime.stores.mongodb.idempotency import IdempotencyRecords
from duetime.stores.mongodb.leases import Leases
from duetime.stores.mongodb.lists import Lists
from duetime.stores.mongodb.recording import Recording
from duetime.stores.mongodb.timer_loading import TimerLoading
from duetime.stores.mongodb.url import Document, open_client
from duetime.stores.time_source import StoreTime, TimeSource


def open_mongodb_store(url: str, *, time_source: TimeSource) -> MongoDbStore:
    """Nothing is contacted yet. Raises ``InvalidSettings`` for a URL that cannot be understood."""
    client, name = open_client(url)
    return MongoDbStore(client, name, time_source=time_source)


class MongoDbStore:
    """Implements ``duetime.stores.port.store.Store``; each part has the operations of one side of it."""

    def __init__(
        self, client: MongoClient[Document], name: str, *, time_source: TimeSource = TimeSource.DATABASE
    ) -> None:
        database = Database(client, name, time_source=time_source)
        self.database = database
        self.close = database.close

        catalogue = Catalogue(database)
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

        api_keys = ApiKeys(database)
        self.create_api_key = api_keys.create_api_key
        self.get_api_key = api_keys.get_api_key
        self.list_api_keys = api_keys.list_api_keys
        self.delete_api_key = api_keys.delete_api_key
        self.all_api_keys = api_keys.all_api_keys

        self._records = IdempotencyRecords(database)
        self.put_idempotency_record = self._records.put_idempotency_record

        clients = Clients(database)
        self.put_timers = clients.put_timers
        self.get_timer = clients.get_timer
        self.update_timer = clients.update_timer
        self.rearm_timers = clients.rearm_timers
        self.delete_timers = clients.delete_timers
        self.load_timers = TimerLoading(database).load_timers

        lists = Lists(database)
        self.list_timers = lists.list_timers
        self.find_by_correlation = lists.find_by_correlation

        leases = Leases(database)
        self.shard_statuses = leases.shard_statuses
        self.claim_shards = leases.claim_shards
        self.renew_leases = leases.renew_leases
        self.release_leases = leases.release_leases
        self.announce_worker = leases.announce_worker
        self.withdraw_worker = leases.withdraw_worker

        due = Due(database)
        self.due_timers = due.due_timers
        self.quarantine = due.quarantine

        recording = Recording(database)
        self.record = recording.record
        self._prune_timers = recording.prune_expired

        self.timers = FamilyTimers(self)
        self.leases = FamilyLeases(self)
        self.catalogue = FamilyCatalogue(self)
        calls = MongoDbCallStore(database)
        self.calls = FamilyCalls(calls)
        self.outbox = FamilyOutbox(calls)
        self.transfer = FamilyTransfer(self, calls)

    def prune_expired(self, *, now: datetime, limit: int) -> int:
        return self._prune_timers(now=now, limit=limit) + self._records.prune(now=now, limit=limit)

    @translated
    def time(self, *, now: datetime) -> StoreTime:
        return StoreTime(self.database.clock(now), resolution_seconds=0.001)

    @translated
    def initialise(self) -> None:
        schema.initialise(self.database)

    @translated
    def check(self) -> None:
        schema.check(self.database)
