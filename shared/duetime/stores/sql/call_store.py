"""The service calls of a SQL store: its parts, put together."""

from __future__ import annotations

from duetime.stores.sql.call_lists import CallLists
from duetime.stores.sql.call_loading import CallLoading
from duetime.stores.sql.call_reads import CallReads
from duetime.stores.sql.call_writes import CallWrites
from duetime.stores.sql.calls import Calls
from duetime.stores.sql.database import Database
from duetime.stores.sql.outbox import Outbox
from duetime.stores.sql.restarting import restarted


class SqlCallStore:
    """Implements ``duetime.stores.family_parts.FamilyCallStore``; each part has the operations of one side of it."""

    def __init__(self, database: Database) -> None:
        writes = CallWrites(database)
        calls = Calls(database, writes)
        self.apply = restarted(calls.apply)
        self.delete_call = restarted(calls.delete_call)

        reads = CallReads(database)
        self.get_calls = reads.get_calls
        self.find_by_idempotency_key = reads.find_by_idempotency_key
        self.get_execution = reads.get_execution
        self.list_executions = reads.list_executions
        self.list_events = reads.list_events

        self.list_calls = CallLists(database).list_calls

        outbox = Outbox(database, writes)
        self.unpublished_events = outbox.unpublished_events
        self.unpublished_of = outbox.unpublished_of
        self.mark_published = restarted(outbox.mark_published)
        self.prune = restarted(outbox.prune)

        loading = CallLoading(database)
        self.load_executions = restarted(loading.load_executions)
        self.all_events = loading.all_events
        self.load_events = restarted(loading.load_events)
