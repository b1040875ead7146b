"""What clients do to single timers: create, replace, read, change, rearm and delete."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from duetime.domain.errors import StoreError, StoreUnavailable
from duetime.domain.namespaces import Namespace
from duetime.domain.timers import Rearm, Timer, TimerChange, replaced
from duetime.domain.times import format_instant
from duetime.stores.client_results import put_result, rearm_result, update_result
from duetime.stores.dynamodb.changes import Change, Item, difference, text, whole
from duetime.stores.dynamodb.items import (
    OPTIONAL_ATTRIBUTES,
    Unreadable,
    decode,
    decode_leniently,
    encode,
    key_of,
    timer_key,
)
from duetime.stores.dynamodb.payloads import Payloads, payload_key_of
from duetime.stores.dynamodb.table import BATCH_KEYS, Table, back_offs, chunks, raise_put_off
from duetime.stores.port.timers import ChangeResult, ChangeStatus, PutMode, PutResult, PutStatus, TimerRef
from duetime.stores.port.transfer import LoadStatus
from duetime.stores.refusals import alone

_RACE_TRIES = 10
_IS_ABSENT = "attribute_not_exists(sortKey) OR timer_expires_at <= :now"
_HAS_NO_REVISION = "NOT attribute_type(timer_revision, :number)"
_IS_NOT_EXPIRED = "(attribute_not_exists(timer_expires_at) OR timer_expires_at > :now)"
_CAN_COUNT_ON = "(attribute_not_exists(timer_revision) OR attribute_type(timer_revision, :number))"
_HAS_OTHER_DIGEST = " AND (attribute_not_exists(timer_digest) OR timer_digest <> :timer_digest)"
_GENERATED = {
    "timer_revision": "if_not_exists(timer_revision, :zero) + :one",
    "timer_created_at": "if_not_exists(timer_created_at, :timer_created_at)",
}


class Timers:
    _table: Table
    _payloads: Payloads

    def put_timers(
        self,
        timers: Sequence[Timer],
        *,
        mode: PutMode,
        now: datetime,
        if_revision: int | None = None,
    ) -> list[PutResult]:
        if mode is PutMode.REPLACE:
            return [alone(partial(self._replace, timer, now, if_revision), _put_refused) for timer in timers]
        return self._create(timers, now)

    def get_timer(self, namespace: Namespace, timer_id: str, *, now: datetime) -> Timer | None:
        key = timer_key(namespace.shard_of(timer_id), namespace.name, timer_id)
        return self._read(self._table.get(key, consistent=True), now)

    def update_timer(
        self,
        namespace: Namespace,
        timer_id: str,
        change: TimerChange,
        *,
        firing_id: str,
        now: datetime,
        if_revision: int | None = None,
    ) -> ChangeResult:
        key = timer_key(namespace.shard_of(timer_id), namespace.name, timer_id)
        for back_off in back_offs(_RACE_TRIES):
            item = self._table.get(key, consistent=True)
            timer = self._read(item, now)
            result = update_result(timer, change, if_revision=if_revision, firing_id=firing_id, now=now)
            if result.status is not ChangeStatus.APPLIED or item is None or result.timer is None:
                return result
            if self._write_change(item, result.timer, has_new_payload="payload_json" in change.given()):
                return result
            time.sleep(back_off)
        raise StoreUnavailable("the timer is being changed too often")

    def rearm_timers(
        self,
        namespace: Namespace,
        refs: Sequence[TimerRef],
        *,
        rearm: Rearm,
        now: datetime,
        expires_at: datetime | None = None,
    ) -> list[ChangeResult]:
        results: list[ChangeResult] = []
        for chunk in chunks(refs, BATCH_KEYS):
            results += self._rearm_chunk(namespace, chunk, rearm, now, expires_at)
        return results

    def delete_timers(self, namespace: Namespace, refs: Sequence[TimerRef], *, now: datetime) -> list[ChangeResult]:
        # One request each: only DeleteItem says exactly what it removed (PartiQL's DELETE succeeds on nothing).
        return [alone(partial(self._delete, namespace, ref, now), _change_refused) for ref in refs]

    def load_timers(self, timers: Sequence[Timer], *, now: datetime) -> list[LoadStatus]:
        statuses = []
        for timer, result in zip(timers, self._create(timers, now), strict=True):
            if result.status is PutStatus.REFUSED:
                raise StoreError("DynamoDB refuses a timer")
            is_new, is_same = result.status is PutStatus.CREATED, result.timer == timer
            known = LoadStatus.PRESENT if is_same else LoadStatus.CONFLICT
            statuses.append(LoadStatus.LOADED if is_new else known)
        return statuses

    # -- reading ---------------------------------------------------------------------------------------------

    def _read(self, item: Item | None, now: datetime) -> Timer | None:
        if item is None:
            return None
        (whole_item,) = self._payloads.attach([item])
        timer = None if whole_item is None else decode_leniently(whole_item)
        return None if timer is None or timer.is_expired(now) else timer

    # -- creating --------------------------------------------------------------------------------------------

    def _create(self, timers: Sequence[Timer], now: datetime) -> list[PutResult]:
        items: dict[int, Item] = {}
        results: dict[int, PutResult] = {}
        for at, (timer, key) in enumerate(zip(timers, self._payloads.store_all(timers), strict=True)):
            if isinstance(key, StoreError):
                results[at] = _put_refused(key)
            else:
                items[at] = encode(timer, payload_key=key)
        written = dict(zip(items, self._table.insert(list(items.values())), strict=True))
        taken = [at for at, write in written.items() if not write.is_applied and write.failure is None]
        unseen = [at for at in taken if written[at].item is None]
        stored = {at: written[at].item for at in taken}
        found = self._table.get_many([key_of(items[at]) for at in unseen], consistent=True)
        stored.update(zip(unseen, found, strict=True))
        for at, item in items.items():
            timer, write = timers[at], written[at]
            # What is in the way may be ours: the driver repeats an insert whose answer was lost.
            is_own = write.is_repeated and _firing_id(stored.get(at)) == timer.firing_id
            if write.is_put_off:
                continue
            if write.failure is not None:
                results[at] = _put_refused(write.failure)
            elif write.is_applied or is_own:
                results[at] = PutResult(PutStatus.CREATED, timer)
            else:
                results[at] = alone(partial(self._create_beside, timer, item, stored[at], now), _put_refused)
            if results[at].status is not PutStatus.CREATED:
                self._payloads.remove(timer.shard_id, payload_key_of(item))
        raise_put_off(written.values())  # the others are stored, and the same request finds them so
        return [results[at] for at in range(len(timers))]

    def _create_beside(self, timer: Timer, item: Item, stored: Item | None, now: datetime) -> PutResult:
        """The result of creating ``timer`` when ``stored`` was met under its key."""
        for _ in range(_RACE_TRIES):
            existing = self._read(stored, now)
            if existing is not None:
                is_same = existing.digest == timer.digest
                return PutResult(PutStatus.UNCHANGED if is_same else PutStatus.CONFLICT, existing)
            written = self._table.put(
                item, ConditionExpression=_IS_ABSENT, ExpressionAttributeValues={":now": text(format_instant(now))}
            )
            if written.is_applied:
                return PutResult(PutStatus.CREATED, timer)
            stored = written.item
        raise StoreUnavailable("the timer is being changed too often")

    # -- replacing -------------------------------------------------------------------------------------------

    def _replace(self, timer: Timer, now: datetime, if_revision: int | None) -> PutResult:
        payload_key = self._payloads.store(timer)

        def refused(error: StoreError) -> PutResult:
            self._payloads.remove(timer.shard_id, payload_key)
            return _put_refused(error)

        return alone(partial(self._replace_item, timer, payload_key, now, if_revision), refused)

    def _replace_item(
        self, timer: Timer, payload_key: str | None, now: datetime, if_revision: int | None
    ) -> PutResult:
        item = encode(timer, payload_key=payload_key)
        condition = _HAS_OTHER_DIGEST
        for _ in range(_RACE_TRIES):
            written = self._table.update(**_replacement(item, now, if_revision, condition))
            if written.is_applied:
                return self._replaced(timer, written.item, payload_key)
            stored = self._read(written.item, now)
            if stored is not None and written.is_repeated and _firing_id(written.item) == timer.firing_id:
                # The driver repeated a replacement whose answer was lost.
                return PutResult(PutStatus.CREATED if stored.revision == 1 else PutStatus.REPLACED, stored)
            result = put_result(stored, timer, mode=PutMode.REPLACE, if_revision=if_revision, now=now)
            if result.status in (PutStatus.REVISION_MISMATCH, PutStatus.UNCHANGED):
                self._payloads.remove(timer.shard_id, payload_key)
                return result
            if stored is not None and stored.digest == timer.digest and condition:
                condition = ""  # an unreadable one: the same content repairs it
                continue
            # In the way is an expired timer, which counts as absent, or one with no number to count on from.
            written = self._table.put(item, **_overwriting(now), ReturnValues="ALL_OLD")
            if written.is_applied:
                is_new = written.item is None or decode_leniently(written.item).is_expired(now)
                return PutResult(PutStatus.CREATED if is_new else PutStatus.REPLACED, timer)
        raise StoreUnavailable("the timer is being changed too often")

    def _replaced(self, timer: Timer, old: Item | None, payload_key: str | None) -> PutResult:
        if old is None:
            return PutResult(PutStatus.CREATED, timer)
        old_payload_key = payload_key_of(old)
        if old_payload_key != payload_key:
            self._payloads.remove(timer.shard_id, old_payload_key)
        former = decode_leniently(old)
        new = replaced(former, timer)
        if _counts(old) != _counts(encode(former)):
            # The replaced item was broken just where the new one builds on it.
            new = replace(new, created_at=timer.created_at)
            self._table.apply_one(
                Change(
                    key=key_of(old),
                    sets=_counts(encode(new)),
                    unchanged={"timer_firing_id": text(new.firing_id)},
                )
            )
        return PutResult(PutStatus.REPLACED, new)

    # -- changing and deleting -------------------------------------------------------------------------------

    def _write_change(self, item: Item, new: Timer, *, has_new_payload: bool) -> bool:
        """Make the stored ``item`` into ``new`` unless it was changed since it was read."""
        old_key = payload_key_of(item)
        payload_key = self._payloads.store(new) if has_new_payload else old_key
        change = _change_to(item, new, payload_key=payload_key)
        written = self._table.apply_one(change)
        is_applied = written.is_applied or written.is_own_work(change)
        if payload_key != old_key:
            self._payloads.remove(new.shard_id, old_key if is_applied else payload_key)
        return is_applied

    def _rearm_chunk(
        self,
        namespace: Namespace,
        refs: Sequence[TimerRef],
        rearm: Rearm,
        now: datetime,
        expires_at: datetime | None,
    ) -> list[ChangeResult]:
        """Read together and written together; large ones, and those that somebody else changes, one by one."""
        keys = [timer_key(namespace.shard_of(ref.timer_id), namespace.name, ref.timer_id) for ref in refs]
        items = self._table.get_many(keys, consistent=True)
        results: dict[int, ChangeResult] = {}
        changes: dict[int, Change] = {}
        for at, (item, ref) in enumerate(zip(items, refs, strict=True)):
            if payload_key_of(item) is not None:
                continue
            result, is_change = _rearm_result(item, ref, rearm, now, expires_at)
            if is_change and item is not None and result.timer is not None:
                changes[at] = _change_to(item, result.timer, payload_key=None)
            results[at] = result
        applied = self._table.apply(list(changes.values()))
        raise_put_off(applied)
        for at, written in zip(changes, applied, strict=True):
            if written.failure is not None:
                results[at] = _change_refused(written.failure)
            elif not written.is_applied and not written.is_own_work(changes[at]):
                del results[at]
        return [
            results[at]
            if at in results
            else alone(partial(self._rearm_one, key, ref, rearm, now, expires_at), _change_refused)
            for at, (key, ref) in enumerate(zip(keys, refs, strict=True))
        ]

    def _rearm_one(
        self, key: Item, ref: TimerRef, rearm: Rearm, now: datetime, expires_at: datetime | None
    ) -> ChangeResult:
        """Rearm a timer with whatever payload it has.

        The payload of a failed timer ends with it: it has a TTL, or the recorder is about to give it one. So a
        redrive stores it anew, under another key, which no late TTL can reach; a cancel does so with a TTL. Whoever
        dies in between leaves the timer as it was, and at most a payload item that nothing refers to.
        """
        for back_off in back_offs(_RACE_TRIES):
            item = self._table.get(key, consistent=True)
            if item is not None:
                (item,) = self._payloads.attach([item])
            result, is_change = _rearm_result(item, ref, rearm, now, expires_at)
            if not is_change or item is None or result.timer is None:
                return result
            has_large_payload = payload_key_of(item) is not None
            has_new_payload = has_large_payload and rearm is not Rearm.FIRE
            if has_large_payload:
                del item["timer_payload"]  # read beside the item, not in it
            if self._write_change(item, result.timer, has_new_payload=has_new_payload):
                return result
            time.sleep(back_off)
        raise StoreUnavailable("the timer is being changed too often")

    def _delete(self, namespace: Namespace, ref: TimerRef, now: datetime) -> ChangeResult:
        key = timer_key(namespace.shard_of(ref.timer_id), namespace.name, ref.timer_id)
        parameters: dict[str, Any] = {}
        if ref.if_revision is not None:
            parameters["ConditionExpression"] = "timer_revision = :revision"
            parameters["ExpressionAttributeValues"] = {":revision": whole(ref.if_revision)}
        written = self._table.delete(key, **parameters)
        item = written.item
        if item is None:
            # Nothing is there, and the driver asked twice: as far as can be told, its first request removed it.
            return ChangeResult(ChangeStatus.APPLIED if written.is_repeated else ChangeStatus.NOT_FOUND)
        if not written.is_applied:
            stored = self._read(item, now)
            status = ChangeStatus.NOT_FOUND if stored is None else ChangeStatus.REVISION_MISMATCH
            return ChangeResult(status, stored)
        payload = self._payloads.remove(int(item["shard_id"]["N"]), payload_key_of(item))
        timer = decode_leniently(item if payload is None else {**item, "timer_payload": text(payload)})
        if timer.is_expired(now):
            return ChangeResult(ChangeStatus.NOT_FOUND)
        return ChangeResult(ChangeStatus.APPLIED, timer)


def _put_refused(error: StoreError) -> PutResult:
    del error  # logged
    return PutResult(PutStatus.REFUSED, None)


def _change_refused(error: StoreError) -> ChangeResult:
    del error  # logged
    return ChangeResult(ChangeStatus.REFUSED)


def _change_to(item: Item, new: Timer, *, payload_key: str | None) -> Change:
    """What makes the stored ``item`` into ``new``, while nobody else has changed it."""
    sets, removes = difference(item, encode(new, payload_key=payload_key))
    return Change(
        key=key_of(item),
        sets=sets,
        # Attributes that this version does not know stay.
        removes=tuple(name for name in removes if name in OPTIONAL_ATTRIBUTES),
        unchanged={name: item[name] for name in ("timer_revision", "timer_firing_id")},
    )


def _rearm_result(
    item: Item | None, ref: TimerRef, rearm: Rearm, now: datetime, expires_at: datetime | None
) -> tuple[ChangeResult, bool]:
    """What becomes of the timer in ``item``, payload in place, and whether that is to be written."""
    stored = None if item is None else decode_leniently(item)
    if stored is not None and stored.is_expired(now):
        stored = None
    try:
        readable = None if item is None else decode(item)
    except Unreadable:
        readable = None
    return rearm_result(stored, readable, ref, rearm, now=now, expires_at=expires_at)


def _replacement(item: Item, now: datetime, if_revision: int | None, condition: str) -> dict[str, Any]:
    """Parameters of the UpdateItem that puts ``item`` in the place of whatever is stored, is not expired and fits
    ``condition``."""
    sets = [f"{name} = {_GENERATED.get(name, f':{name}')}" for name in item if name not in ("shard_id", "sortKey")]
    removes = [name for name in OPTIONAL_ATTRIBUTES if name not in item]
    values = {f":{name}": item[name] for name in item if name not in ("shard_id", "sortKey", "timer_revision")}
    values |= {":zero": whole(0), ":one": whole(1), ":now": text(format_instant(now)), ":number": text("N")}
    condition = f"{_IS_NOT_EXPIRED} AND {_CAN_COUNT_ON}{condition}"
    if if_revision is not None:
        condition += " AND timer_revision = :if_revision"
        values[":if_revision"] = whole(if_revision)
    return {
        "Key": key_of(item),
        "UpdateExpression": f"SET {', '.join(sets)} REMOVE {', '.join(removes)}",
        "ConditionExpression": condition,
        "ExpressionAttributeValues": values,
        "ReturnValues": "ALL_OLD",
    }


def _overwriting(now: datetime) -> dict[str, Any]:
    """The condition under which a whole item may be put over what is stored."""
    return {
        "ConditionExpression": f"{_IS_ABSENT} OR {_HAS_NO_REVISION}",
        "ExpressionAttributeValues": {":now": text(format_instant(now)), ":number": text("N")},
    }


def _counts(item: Item) -> Item:
    """What a replaced timer hands on."""
    return {name: item[name] for name in _GENERATED if name in item}


def _firing_id(item: Item | None) -> str | None:
    return None if item is None else item.get("timer_firing_id", {}).get("S")
