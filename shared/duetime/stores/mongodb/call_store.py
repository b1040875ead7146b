"""The service calls of the MongoDB store: its parts, put together."""

from __future__ import annotations

from duetime.stores.mongodb.call_lists import CallLists
from duetime.stores.mongodb.call_loading import CallLoading
from duetime.stores.mongodb.call_reads import CallReads
from duetime.stores.mongodb.calls import Calls
from duetime.stores.mongodb.database import Database
from duetime.stores.mongodb.outbox import Outbox


class MongoDbCallStore:
    """Implements ``duetime.stores.family_parts.FamilyCallStore``; each part has the operations of one side of it."""

    def __init__(self, database: Database) -> None:
        calls = Calls(database)
        self.apply = calls.apply
        self.delete_call = calls.delete_call

        reads = CallReads(database)
        self.get_calls = reads.get_calls
        self.find_by_idempotency_key = reads.find_by_idempotency_key
        self.get_execution = reads.get_execution
        self.list_executions = reads.list_executions
        self.list_events = reads.list_events

        self.list_calls = CallLists(database).list_calls

        outbox = Outbox(database)
        self.unpublished_events = outbox.unpublished_events
        self.unpublished_of = outbox.unpublished_of
        self.mark_published = outbox.mark_published
        self.prune = outbox.prune

        loading = CallLoading(database)
        self.load_executions = loading.load_executions
        self.all_events = loading.all_events
        self.load_events = loading.load_events
