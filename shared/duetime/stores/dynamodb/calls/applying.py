"""Transitions as transactions over both tables: the call, its timer, and what hangs on it (decision 0018)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from duetime.domain.call_steps import Transition
from duetime.domain.errors import StoreUnavailable
from duetime.domain.service_calls import ServiceCall
from duetime.stores.dynamodb.calls import keys
from duetime.stores.dynamodb.calls.event_items import encode_events
from duetime.stores.dynamodb.calls.execution_items import REQUEST, encode_execution
from duetime.stores.dynamodb.calls.items import encode_body, encode_call, encode_timer, has_own_body, is_absent
from duetime.stores.dynamodb.calls.transactions import Write, delete, put, update, write_all
from duetime.stores.dynamodb.changes import Change, Item, difference, text, whole
from duetime.stores.dynamodb.table import Table
from duetime.stores.port.calls import ApplyStatus
from duetime.stores.side_by_side import Workers

_KEY_TRIES = 3
_IS_NEW = "attribute_not_exists(sort_key)"
_CALL_AT = 0
_KEY_AT = 1
"""Positions of the conditional writes in a transaction; the second only where there is an idempotency key."""


class Applying:
    _timers: Table
    _calls: Table
    _workers: Workers

    def apply(self, transitions: Sequence[Transition], *, now: datetime) -> list[ApplyStatus]:
        # The revision is the fence, as for `record`: a check of the shard's row would cost every transaction two
        # units, all of them on one item, for which they would contend with each other and with the lease's renewals.
        put_off: dict[tuple[str, int], StoreUnavailable] = {}

        def apply(transition: Transition) -> ApplyStatus:
            partitions = transition.after.tenant_id, transition.after.shard_id
            if partitions not in put_off:  # else it would wait in vain, and keep others waiting
                try:
                    return self._apply_one(transition, now)
                except StoreUnavailable as error:
                    put_off[partitions] = error
            return ApplyStatus.UNAVAILABLE

        statuses = self._workers.map(apply, transitions)
        if put_off and set(statuses) == {ApplyStatus.UNAVAILABLE}:
            raise next(iter(put_off.values()))
        return statuses

    def _apply_one(self, transition: Transition, now: datetime) -> ApplyStatus:
        call_item = encode_call(transition.after)
        writes = [*self._call_writes(transition, call_item), *self._other_writes(transition)]
        for _ in range(_KEY_TRIES):
            refusal = write_all(self._calls.client, writes)
            if refusal is None:
                return ApplyStatus.APPLIED
            met = refusal.met.get(_CALL_AT)
            if refusal.is_repeated and met is not None and call_item.items() <= met.items():
                return ApplyStatus.APPLIED  # by the first request, whose answer was lost
            if transition.before is not None:
                return ApplyStatus.SUPERSEDED
            holder = refusal.met.get(_KEY_AT)
            if _CALL_AT in refusal.met or (holder is not None and self._is_alive(holder, now)):
                return ApplyStatus.EXISTS
            writes[_KEY_AT] = self._idempotency_write(transition.after, instead_of=holder)
        raise StoreUnavailable("the idempotency key is being changed too often")

    def _is_alive(self, key_item: Item, now: datetime) -> bool:
        """Whether the call that an idempotency key belongs to is still there."""
        key = keys.call_key(key_item["tenant_id"]["S"], key_item["call_id"]["S"])
        return not is_absent(self._calls.get(key, consistent=True), now)

    # -- composing a transaction -----------------------------------------------------------------------------

    def _call_writes(self, transition: Transition, call_item: Item) -> list[Write]:
        """The conditional writes, in the order of their positions."""
        before, after = transition.before, transition.after
        if before is None:
            new = put(self._calls.name, call_item, _IS_NEW)
            return [new] if after.idempotency_key is None else [new, self._idempotency_write(after)]
        sets, removes = difference(encode_call(before), call_item)
        change = Change(
            key=keys.call_key(after.tenant_id, after.call_id),
            sets=sets,
            removes=removes,
            unchanged={"revision": whole(before.revision)},
        )
        return [update(self._calls.name, change)]

    def _idempotency_write(self, call: ServiceCall, *, instead_of: Item | None = None) -> Write:
        """``instead_of``: the item of a call that is gone and whose key is taken over, unless another is faster."""
        assert call.idempotency_key is not None
        item = {
            **keys.idempotency_key(call.tenant_id, call.idempotency_key),
            "row_type": text("KEY"),
            "call_id": text(call.call_id),
        }
        if instead_of is None:
            return put(self._calls.name, item, _IS_NEW)
        return put(self._calls.name, item, "call_id = :gone", {":gone": instead_of["call_id"]})

    def _other_writes(self, transition: Transition) -> list[Write]:
        before, after = transition.before, transition.after
        items: list[Item] = []
        removed: list[Item] = []
        if before is None or before.request != after.request:
            if has_own_body(after.request):
                items.append(encode_body(after))
            elif before is not None and has_own_body(before.request):
                removed.append(keys.body_key(after.tenant_id, after.call_id))
        tags_before = () if before is None else before.tags
        for tag in sorted({*tags_before, *after.tags}):
            key = keys.tag_key(after.tenant_id, tag, after.call_id)
            if tag not in tags_before:
                items.append({**key, "row_type": text("TAG")})
            elif tag not in after.tags:
                removed.append(key)
        for execution in transition.executions:
            item, apart = encode_execution(execution)
            if before is not None and before.execution_id == execution.execution_id:
                apart.pop(REQUEST, None)  # written when it began, and no step changes it
            items += [item, *apart.values()]
        if transition.events:
            items.append(encode_events(transition.events))
        return [
            put(self._timers.name, encode_timer(after)),
            *(put(self._calls.name, item) for item in items),
            *(delete(self._calls.name, key) for key in removed),
        ]
