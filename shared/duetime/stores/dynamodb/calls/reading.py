"""Calls by id and by idempotency key, executions, and the events of one call: strongly consistent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

from duetime.domain.call_events import CallEvent
from duetime.domain.errors import CallUnreadable
from duetime.domain.executions import Execution
from duetime.domain.service_calls import ServiceCall
from duetime.stores.bound_cursors import read_cursor, write_cursor
from duetime.stores.dynamodb.calls import keys
from duetime.stores.dynamodb.calls.event_items import decode_events
from duetime.stores.dynamodb.calls.execution_items import keys_apart
from duetime.stores.dynamodb.calls.items import decode_call, has_own_body, is_absent, is_closing, with_body
from duetime.stores.dynamodb.calls.salvage import decode_or_salvage_execution
from duetime.stores.dynamodb.changes import Item, text
from duetime.stores.dynamodb.items import Unreadable
from duetime.stores.dynamodb.table import Table
from duetime.stores.event_reading import UnreadableEventError, report_unreadable
from duetime.stores.port.calls import CallRef
from duetime.stores.port.pages import Page

_READ_TRIES = 4
_MESSAGES_PER_PAGE = 32
"""Bounds the memory of a page of executions: at most so many long requests and responses."""


class Reading:
    _calls: Table

    # -- calls -----------------------------------------------------------------------------------------------

    def get_calls(self, refs: Sequence[CallRef], *, now: datetime) -> list[ServiceCall | None]:
        found: list[ServiceCall | None] = [None] * len(refs)
        pending = list(range(len(refs)))
        for _ in range(_READ_TRIES):
            call_keys = [keys.call_key(refs[at].tenant_id, refs[at].call_id) for at in pending]
            for at, item in zip(pending, self._calls.get_many(call_keys, consistent=True), strict=True):
                found[at] = None if item is None or is_absent(item, now) else _readable(item)
            pending = self._add_bodies(found, pending)
            if not pending:
                return found
        raise CallUnreadable("the stored service call cannot be read: its body is gone")

    def _add_bodies(self, found: list[ServiceCall | None], positions: Sequence[int]) -> list[int]:
        """Put bodies in place; the positions of the calls that were changed since they were read."""
        calls = {at: call for at in positions if (call := found[at]) is not None and has_own_body(call.request)}
        bodies = [keys.body_key(call.tenant_id, call.call_id) for call in calls.values()]
        changed = []
        for (at, call), body in zip(calls.items(), self._calls.get_many(bodies, consistent=True), strict=True):
            if body is None or int(body["revision"]["N"]) > call.revision:
                changed.append(at)
            else:
                found[at] = with_body(call, body)
        return changed

    def find_by_idempotency_key(self, tenant_id: str, key: str, *, now: datetime) -> ServiceCall | None:
        item = self._calls.get(keys.idempotency_key(tenant_id, key), consistent=True)
        if item is None:
            return None
        (call,) = self.get_calls([CallRef(tenant_id, item["call_id"]["S"])], now=now)
        return call

    # -- executions ------------------------------------------------------------------------------------------

    def get_execution(self, tenant_id: str, call_id: str, execution_id: str) -> Execution | None:
        item = self._calls.get(keys.execution_key(tenant_id, call_id, execution_id), consistent=True)
        return None if item is None else self._executions([item])[0]

    def list_executions(self, tenant_id: str, call_id: str, *, cursor: str | None, limit: int) -> Page[Execution]:
        query = (tenant_id, call_id, "executions")
        parameters: dict[str, Any] = {}
        if cursor is not None:
            (after,) = read_cursor(cursor, query, parts=1)
            parameters["ExclusiveStartKey"] = keys.execution_key(tenant_id, call_id, after)
        page = self._calls.query(
            "tenant_id = :tenant AND begins_with(sort_key, :prefix)",
            {":tenant": text(tenant_id), ":prefix": text(keys.execution_prefix(call_id))},
            ConsistentRead=True,
            ScanIndexForward=False,
            Limit=limit,
            **parameters,
        )
        executions = self._executions(_within_budget(page.items))
        is_last = page.last_key is None and len(executions) == len(page.items)
        next_cursor = None if is_last or not executions else write_cursor([executions[-1].execution_id], query)
        return Page(executions, next_cursor)

    def _executions(self, items: Sequence[Item]) -> list[Execution]:
        """One for each of ``items``, with long messages in place."""
        wanted = [(at, part, key) for at, item in enumerate(items) for part, key in keys_apart(item).items()]
        messages = self._calls.get_many([key for _, _, key in wanted], consistent=True)
        completed = list(items)
        for (at, part, _), message in zip(wanted, messages, strict=True):
            if message is not None:  # gone only when the call is being removed
                completed[at] = {**completed[at], part: message["message"]}
        return [decode_or_salvage_execution(item) for item in completed]

    # -- events ----------------------------------------------------------------------------------------------

    def list_events(self, tenant_id: str, call_id: str, *, after: int, limit: int) -> list[CallEvent]:
        call = self._calls.get(keys.call_key(tenant_id, call_id), consistent=True)
        if call is None or is_closing(call):
            return []
        items = self._event_items(CallRef(tenant_id, call_id), after=after, limit=limit)
        events = [event for _, found in readable_events(items) for event in found if event.sequence > after]
        return events[:limit]

    def _event_items(self, ref: CallRef, *, after: int, limit: int, only_unpublished: bool = False) -> Iterator[Item]:
        """The items that hold events with a sequence above ``after``, in order; at most ``limit``, which is enough
        for as many events, since each holds one at least."""
        parameters: dict[str, Any] = {"FilterExpression": "attribute_exists(outbox_key)"} if only_unpublished else {}
        values = {
            ":tenant": text(ref.tenant_id),
            ":first": text(keys.event_sort_key(ref.call_id, after + 1)),
            ":last": text(keys.events_end(ref.call_id)),
        }
        while limit > 0:
            page = self._calls.query(
                "tenant_id = :tenant AND sort_key BETWEEN :first AND :last",
                values,
                ConsistentRead=True,
                Limit=limit,
                **parameters,
            )
            yield from page.items
            limit -= len(page.items)
            if page.last_key is None:
                return
            parameters["ExclusiveStartKey"] = page.last_key


def readable_events(items: Iterable[Item]) -> Iterator[tuple[Item, list[CallEvent]]]:
    """The events of ``items``, which are of one call in order, up to the first that cannot be read.

    Those behind it have to wait, or their order would be lost; other calls' events need not.
    """
    for item in items:
        try:
            yield item, decode_events(item)
        except Unreadable as error:
            report_unreadable(
                UnreadableEventError(f"the stored events cannot be read: {error}"),
                tenant_id=item["tenant_id"]["S"],
                call_id=keys.call_id_of_event(item["sort_key"]["S"]),
                sequence=keys.sequence_of(item["sort_key"]["S"]),
            )
            return


def _readable(item: Item) -> ServiceCall:
    try:
        return decode_call(item)
    except Unreadable as error:
        raise CallUnreadable(f"the stored service call cannot be read: {error}") from error


def _within_budget(items: Sequence[Item]) -> Sequence[Item]:
    """The longest beginning of ``items``, at least one, with at most _MESSAGES_PER_PAGE long messages."""
    messages = 0
    for at, item in enumerate(items):
        messages += len(keys_apart(item))
        if messages > _MESSAGES_PER_PAGE and at:
            return items[:at]
    return items
