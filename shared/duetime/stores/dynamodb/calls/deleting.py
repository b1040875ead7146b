"""Removing calls with all that hangs on them."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any

from duetime.domain.call_events import CallEvent
from duetime.domain.errors import StoreUnavailable
from duetime.domain.service_calls import CallStatus, ServiceCall, calls_namespace
from duetime.domain.times import format_instant
from duetime.stores.dynamodb.calls import keys
from duetime.stores.dynamodb.calls.event_items import encode_events
from duetime.stores.dynamodb.calls.items import (
    closing,
    decode_call,
    encode_timer,
    has_own_body,
    is_absent,
    is_closing,
    tags_of,
)
from duetime.stores.dynamodb.calls.transactions import MAX_WRITES, Write, delete, put, write_all
from duetime.stores.dynamodb.changes import Item, text, whole
from duetime.stores.dynamodb.items import Unreadable, timer_key
from duetime.stores.dynamodb.items import key_of as timer_key_of
from duetime.stores.dynamodb.table import Table, back_offs
from duetime.stores.port.calls import CallRef, DeleteStatus, EventOf
from duetime.stores.side_by_side import Workers

_log = logging.getLogger(__name__)

_RACE_TRIES = 10
_IS_OF_CALL = "attribute_not_exists(call_id) OR call_id = :call"
"""The condition for removing an idempotency key: by now it may be another call's."""


class Deleting:
    _timers: Table
    _calls: Table
    _workers: Workers

    def delete_call(
        self,
        tenant_id: str,
        call_id: str,
        *,
        now: datetime,
        if_revision: int | None = None,
        event: CallEvent | None = None,
    ) -> DeleteStatus:
        """One transaction where its hundred writes suffice.

        A call with more executions is closed in one transaction, after which it reads as absent; then the executions
        go, and what is left of the call last. A repeat, or ``prune``, completes what was cut short.
        """
        ref = CallRef(tenant_id, call_id)
        for back_off in back_offs(_RACE_TRIES):
            item = self._calls.get(keys.call_key(tenant_id, call_id), consistent=True)
            if item is not None and is_closing(item):
                self._complete(ref)
                return DeleteStatus.DELETED
            if item is None or is_absent(item, now):
                return DeleteStatus.NOT_FOUND
            try:
                call = decode_call(item)
            except Unreadable:  # nothing else can be done with it
                self._remove_children(item)
                self._complete(ref)
                return DeleteStatus.DELETED
            if if_revision not in (None, call.revision):
                return DeleteStatus.REVISION_MISMATCH
            if call.status is CallStatus.RUNNING:
                return DeleteStatus.RUNNING
            if self._remove(call, now, event):
                return DeleteStatus.DELETED
            time.sleep(back_off)
        raise StoreUnavailable("the service call is being changed too often")

    def _remove_children(self, item: Item) -> None:
        """Remove what hangs on a call that cannot be read. Events stay until they are published."""
        tenant_id = item["tenant_id"]["S"]
        call_id = item["sort_key"]["S"].removeprefix(keys.CALL)
        if "idempotency_key" in item:
            self._release_key(tenant_id, item["idempotency_key"]["S"], call_id)
        if "shard_id" in item:
            self._timers.delete(timer_key(int(item["shard_id"]["N"]), calls_namespace(tenant_id), call_id))
        tags = [keys.tag_key(tenant_id, tag, call_id) for tag in tags_of(item)]
        ref = CallRef(tenant_id, call_id)
        self._calls.delete_many([*tags, keys.body_key(tenant_id, call_id), *self._execution_keys(ref)])

    def _release_key(self, tenant_id: str, idempotency_key: str, call_id: str) -> None:
        self._calls.delete(
            keys.idempotency_key(tenant_id, idempotency_key),
            ConditionExpression=_IS_OF_CALL,
            ExpressionAttributeValues={":call": text(call_id)},
        )

    def prune(
        self, *, now: datetime, events_published_before: datetime, limit: int, event_of: EventOf | None = None
    ) -> int:
        """Calls that have expired, with what hung on them, and what is left of removals that were cut short. Events
        are left to the table's TTL."""
        del events_published_before
        found = self._workers.map(
            lambda partition: self._expired(partition, now, limit),
            range(keys.OUTBOX_PARTITIONS, 2 * keys.OUTBOX_PARTITIONS),
        )
        expired = sorted(
            (entry for entries in found for entry in entries), key=lambda entry: entry["outbox_key"]["S"]
        )
        return sum(
            self._workers.map(lambda entry: self._remove_expired(keys.key_of(entry), now, event_of), expired[:limit])
        )

    def _expired(self, partition: int, now: datetime, limit: int) -> Sequence[Item]:
        """Of one partition of the index, which may lag."""
        return self._calls.query(
            "outbox_partition = :partition AND outbox_key <= :now",
            {":partition": whole(partition), ":now": text(format_instant(now))},
            IndexName=keys.OUTBOX_INDEX,
            Limit=limit,
        ).items

    def _remove_expired(self, key: Item, now: datetime, event_of: EventOf | None) -> bool:
        item = self._calls.get(key, consistent=True)
        try:
            if item is None or not is_absent(item, now):
                return False
            if is_closing(item):
                self._complete(CallRef(item["tenant_id"]["S"], keys.call_id_of(item["sort_key"]["S"])))
                return True
            with suppress(Unreadable):
                return self._remove_told(decode_call(item), now, event_of)
            self._remove_children(item)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            reason = type(error).__name__
            _log.error("an expired service call cannot be removed: %s", reason, extra={"action": "call.unremovable"})
            return False
        # Nothing changes a call that reads as absent.
        self._calls.delete(key)
        return True

    def _remove_told(self, call: ServiceCall, now: datetime, event_of: EventOf | None) -> bool:
        if call.idempotency_key is not None:  # it may have been taken over, since the call reads as absent
            self._release_key(call.tenant_id, call.idempotency_key, call.call_id)
        event = None if event_of is None else event_of(call)
        return self._remove(replace(call, idempotency_key=None), now, event)

    # -- one call --------------------------------------------------------------------------------------------

    def _remove(self, call: ServiceCall, now: datetime, event: CallEvent | None) -> bool:
        """False: it was changed meanwhile, and nothing was removed."""
        ref = CallRef(call.tenant_id, call.call_id)
        # No more are added: it has finished, or the condition fails since it has begun.
        executions = self._execution_keys(ref) if call.attempts else []
        key = keys.call_key(call.tenant_id, call.call_id)
        condition = ("revision = :revision", {":revision": whole(call.revision)})
        children = self._child_writes(call)
        if event is not None:
            children.append(put(self._calls.name, encode_events([event])))
        if 1 + len(children) + len(executions) <= MAX_WRITES:
            removed = [delete(self._calls.name, each) for each in executions]
            return self._wrote(delete(self._calls.name, key, *condition), [*children, *removed])
        left = put(self._calls.name, closing(call.tenant_id, call.call_id, now), *condition)
        if not self._wrote(left, children):
            return False
        self._complete(ref)
        return True

    def _wrote(self, of_call: Write, others: list[Write]) -> bool:
        refusal = write_all(self._calls.client, [of_call, *others])
        if refusal is None:
            return True
        # Gone, and the driver asked twice: the first request did it, and its answer was lost.
        return refusal.is_repeated and 0 in refusal.met and refusal.met[0] is None

    def _child_writes(self, call: ServiceCall) -> list[Write]:
        """Of all that hangs on ``call`` but its executions."""
        writes = [delete(self._timers.name, timer_key_of(encode_timer(call)))]
        found = [keys.tag_key(call.tenant_id, tag, call.call_id) for tag in set(call.tags)]
        if has_own_body(call.request):
            found.append(keys.body_key(call.tenant_id, call.call_id))
        writes += [delete(self._calls.name, each) for each in found]
        if call.idempotency_key is not None:
            key = keys.idempotency_key(call.tenant_id, call.idempotency_key)
            writes.append(delete(self._calls.name, key, _IS_OF_CALL, {":call": text(call.call_id)}))
        return writes

    def _complete(self, ref: CallRef) -> None:
        self._calls.delete_many(self._execution_keys(ref))
        self._calls.delete(keys.call_key(ref.tenant_id, ref.call_id))

    def _execution_keys(self, ref: CallRef) -> list[Item]:
        """Of the whole execution log, long requests and responses included.

        The latter by a query of their own: one whose execution is gone, since a removal was cut short, is found too.
        """
        found: list[Item] = []
        for prefix in (keys.execution_prefix(ref.call_id), keys.message_prefix(ref.call_id)):
            parameters: dict[str, Any] = {}
            while True:
                page = self._calls.query(
                    "tenant_id = :tenant AND begins_with(sort_key, :prefix)",
                    {":tenant": text(ref.tenant_id), ":prefix": text(prefix)},
                    ProjectionExpression="tenant_id, sort_key",
                    ConsistentRead=True,
                    **parameters,
                )
                found += page.items
                if page.last_key is None:
                    break
                parameters["ExclusiveStartKey"] = page.last_key
        return found
