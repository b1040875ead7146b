"""What the engine does: read what is due, record what came of it, put aside what cannot be read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from duetime.domain.errors import StoreUnavailable
from duetime.domain.outcomes import LeasedOutcome, Outcome, RecordStatus, recorded
from duetime.domain.timers import Failure, FailureReason, Timer, TimerState
from duetime.domain.times import MIN_INSTANT, format_instant, read_instant
from duetime.stores.dynamodb.changes import Change, Item, difference, text, whole
from duetime.stores.dynamodb.cursors import read_cursor, write_cursor
from duetime.stores.dynamodb.items import (
    DUE_INDEX,
    Unreadable,
    decode,
    decode_leniently,
    encode,
    failure_text,
    item_key,
    key_of,
    lenient,
    time_to_live,
    timer_key,
)
from duetime.stores.dynamodb.payloads import Payloads, is_large, payload_key_of, within_budget
from duetime.stores.dynamodb.table import BATCH_KEYS, QueryPage, Table, Written, chunks
from duetime.stores.glances import LOOKED_AT, Glance, first_that_fit
from duetime.stores.port.timers import LOOKED_AT_PER_TIMER, DuePage, IsWanted, UnreadableRow
from duetime.stores.recording import record
from duetime.stores.refusals import alone

_FIRST_READ = 25
"""Items that a first look at a shard reads, be they due or not."""
_MILLISECOND = timedelta(milliseconds=1)
_GLANCE = ("shard_id", "sortKey", "timer_execute_at", *LOOKED_AT)
_VERSION_ATTRIBUTES = ("timer_revision", "timer_firing_id", "timer_execute_at", "timer_updated_at")


class Due:
    _table: Table
    _payloads: Payloads

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
    ) -> DuePage:
        if known_next is not None and known_next <= until:
            known_next = None
        until_text = format_instant(until)
        later: Sequence[Item] = []
        is_beyond_read = False
        if is_wanted is not None:
            due, end = self._read_wanted(
                shard_id, until, limit=limit, cursor=cursor, since=since, is_wanted=is_wanted
            )
        else:
            if since is not None and cursor is None:
                bound = until if known_next is None else known_next - _MILLISECOND
                bounds = {":since": text(format_instant(since)), ":bound": text(format_instant(bound))}
                page = self._query(shard_id, "timer_execute_at BETWEEN :since AND :bound", bounds, limit=limit)
                is_beyond_read = known_next is not None
            else:
                page, is_beyond_read = self._read_due(
                    shard_id, until, limit=limit, cursor=cursor, known_next=known_next
                )
            due = [item for item in page.items if item["timer_execute_at"]["S"] <= until_text]
            later = page.items[len(due) :]
            end = None if later else page.last_key
        taken = within_budget(due)
        timers, unreadable = self._decode_due(taken, until_text)
        if len(taken) < len(due):
            end = taken[-1]
        if end is not None:
            return DuePage(
                timers,
                cursor=_position(end),
                unreadable=tuple(unreadable),
                cursor_at=_instant(end, "timer_execute_at"),
            )
        if not is_beyond_read:
            later = self._query_due(shard_id, "timer_execute_at > :bound", until, limit=1).items
        next_attempt_at = known_next
        if later:
            try:
                next_attempt_at = read_instant(later[0]["timer_execute_at"]["S"])
            except ValueError as error:
                unreadable.append(_unreadable_row(later[0], str(error)))
        return DuePage(timers, next_attempt_at=next_attempt_at, unreadable=tuple(unreadable))

    def record(self, outcomes: Sequence[LeasedOutcome], *, now: datetime) -> list[RecordStatus]:
        large: dict[str, Item | None] = {}
        statuses = record(outcomes, write=lambda some: self._write(some, now, large), read=self._read_stored)
        for at, each in enumerate(outcomes):
            timer, expires_at = each.outcome.timer, each.outcome.expires_at
            if statuses[at] is RecordStatus.APPLIED and timer.firing_id in large and expires_at is not None:
                expire = partial(self._expire_payload, timer.shard_id, large[timer.firing_id], expires_at)
                try:
                    alone(expire, lambda error: None)  # noqa: ARG005 (the timer has ended all the same)
                except StoreUnavailable:
                    statuses[at] = RecordStatus.UNAVAILABLE  # recorded again, it is recognised, and this tried again
        return statuses

    def quarantine(self, rows: Sequence[UnreadableRow], *, now: datetime, expires_at: datetime) -> None:
        for row in rows:
            seen: dict[str, Any] = json.loads(row.key)
            key = seen.pop("sortKey")
            revision = seen.get("timer_revision")
            failure = Failure(FailureReason.UNREADABLE, row.reason, now)
            change = Change(
                key={**item_key(row.shard_id, ""), "sortKey": key},
                sets={
                    "timer_state": text(TimerState.FAILED.value),
                    "timer_failure": text(failure_text(failure)),
                    "timer_updated_at": text(format_instant(now)),
                    "timer_revision": whole(_next_revision(revision)),
                    "timer_expires_at": text(format_instant(expires_at)),
                    "expires_at": time_to_live(expires_at),
                },
                removes=("timer_execute_at",),
                unchanged=seen,
            )
            written = self._table.apply_one(change, return_old=True)
            if written.is_applied:
                self._expire_payload(row.shard_id, written.item, expires_at)

    def prune_expired(self, *, now: datetime, limit: int) -> int:
        del now, limit  # the table's TTL does it
        return 0

    # -- reading ---------------------------------------------------------------------------------------------

    def _read_due(
        self, shard_id: int, until: datetime, *, limit: int, cursor: str | None, known_next: datetime | None
    ) -> tuple[QueryPage, bool]:
        """What is due, in one query where possible, and whether the query looked beyond ``until`` as well."""
        if known_next is not None:
            # Finds little after ``until``, and does not read what is due at ``known_next`` again.
            page = self._query_due(shard_id, "timer_execute_at < :bound", known_next, limit=limit, cursor=cursor)
            return page, True
        first: list[Item] = []
        if cursor is None:
            # Nothing is known about what comes next, so it is read too: few items, for all may be much later.
            page = self._query_due(shard_id, None, None, limit=min(limit, _FIRST_READ))
            first, last_key = page.items, page.last_key
            if last_key is None or len(first) == limit or last_key["timer_execute_at"]["S"] > format_instant(until):
                return page, True
            cursor = _position(last_key)
        page = self._query_due(shard_id, "timer_execute_at <= :bound", until, limit=limit - len(first), cursor=cursor)
        return QueryPage([*first, *page.items], page.last_key), False

    def _read_wanted(
        self,
        shard_id: int,
        until: datetime,
        *,
        limit: int,
        cursor: str | None,
        since: datetime | None,
        is_wanted: IsWanted,
    ) -> tuple[list[Item], Item | None]:
        """What is due and wanted, whole, and behind what there may be more. Only a few attributes of all are sent."""
        begin = MIN_INSTANT if since is None else since
        looked_at = self._query(
            shard_id,
            "timer_execute_at BETWEEN :since AND :until",
            {":since": text(format_instant(begin)), ":until": text(format_instant(until))},
            limit=limit * LOOKED_AT_PER_TIMER,
            cursor=cursor,
            ProjectionExpression=", ".join(_GLANCE),
        )
        chosen, is_more = first_that_fit(
            looked_at.items, lambda item: _glance(item).is_for_page(is_wanted, until), limit
        )
        whole: list[Item] = []
        for some in chunks(chosen, BATCH_KEYS):
            found = self._table.get_many([key_of(item) for item in some], consistent=True)
            # One that was changed between the two reads is due at another time, or not at all.
            whole += [
                item
                for item, seen in zip(found, some, strict=True)
                if item is not None and item.get("timer_execute_at") == seen["timer_execute_at"]
            ]
            if len(within_budget(whole)) < len(whole):
                break
        return whole, chosen[-1] if is_more else looked_at.last_key

    def _query_due(
        self, shard_id: int, condition: str | None, bound: datetime | None, *, limit: int, cursor: str | None = None
    ) -> QueryPage:
        bounds = {} if bound is None else {":bound": text(format_instant(bound))}
        return self._query(shard_id, condition, bounds, limit=limit, cursor=cursor)

    def _query(
        self,
        shard_id: int,
        condition: str | None,
        bounds: Item,
        *,
        limit: int,
        cursor: str | None = None,
        **parameters: Any,
    ) -> QueryPage:
        if cursor is not None:
            at, key = read_cursor(cursor, str, str)
            parameters["ExclusiveStartKey"] = {**item_key(shard_id, key), "timer_execute_at": text(at)}
        return self._table.query(
            "shard_id = :shard" + ("" if condition is None else f" AND {condition}"),
            {":shard": whole(shard_id), **bounds},
            IndexName=DUE_INDEX,
            ConsistentRead=True,
            Limit=limit,
            **parameters,
        )

    def _decode_due(self, items: Sequence[Item], until: str) -> tuple[list[Timer], list[UnreadableRow]]:
        timers = []
        unreadable = []
        for item in self._payloads.attach(items):
            # A timer that was read again for its payload may have been moved or have ended since.
            if item is None or item.get("timer_execute_at", {}).get("S", "~") > until:
                continue
            try:
                timers.append(decode(item))
            except Unreadable as error:
                unreadable.append(_unreadable_row(item, str(error)))
        return timers, unreadable

    # -- recording -------------------------------------------------------------------------------------------

    def _write(
        self, outcomes: Sequence[LeasedOutcome], now: datetime, large: dict[str, Item | None]
    ) -> list[RecordStatus]:
        """No transaction spans shards here: revision and firing are the fence, not the lease (port.py).

        ``large``: where a finished timer has a payload item, which must end with it, its key is asked for, and the
        item that was met is put there under its firing.
        """
        changes = [_change(each.outcome, now) for each in outcomes]
        apart = [at for at, each in enumerate(outcomes) if _ends_large(each.outcome)]
        together = [at for at, each in enumerate(outcomes) if not _ends_large(each.outcome)]
        applied = self._table.apply([changes[at] for at in together], is_patient=False)
        written = dict(zip(together, applied, strict=True))
        for at in apart:
            written[at] = self._table.apply_alone(changes[at], return_old=True)
            large[outcomes[at].outcome.timer.firing_id] = written[at].item
        return [_status(written[at]) for at in range(len(outcomes))]

    def _read_stored(self, timers: Sequence[Timer]) -> list[Timer | None]:
        keys = [timer_key(timer.shard_id, timer.namespace, timer.timer_id) for timer in timers]
        items = [item for item in self._table.get_many(keys, consistent=True) if item is not None]
        found = [decode_leniently(item) for item in self._payloads.attach(items) if item is not None]
        by_id = {(timer.namespace, timer.timer_id): timer for timer in found}
        return [by_id.get((timer.namespace, timer.timer_id)) for timer in timers]

    def _expire_payload(self, shard_id: int, item: Item | None, expires_at: datetime) -> None:
        """``item``: that of a timer which has ended."""
        payload_key = payload_key_of(item)
        if payload_key is not None:
            self._payloads.expire(shard_id, payload_key, expires_at)


def _change(outcome: Outcome, now: datetime) -> Change:
    # Both are encoded with the payload inside, wherever it is stored: it does not change, so it is not written.
    old_item = encode(outcome.timer)
    sets, removes = difference(old_item, encode(recorded(outcome, now=now)))
    return Change(
        key=key_of(old_item),
        sets=sets,
        removes=removes,
        unchanged={name: old_item[name] for name in ("timer_revision", "timer_firing_id")},
    )


def _ends_large(outcome: Outcome) -> bool:
    return outcome.state.is_finished and is_large(outcome.timer.content.payload_json)


def _status(written: Written) -> RecordStatus:
    if written.failure is not None:
        return RecordStatus.UNAVAILABLE if written.is_put_off else RecordStatus.REFUSED
    return RecordStatus.APPLIED if written.is_applied else RecordStatus.SUPERSEDED


def _unreadable_row(item: Item, reason: str) -> UnreadableRow:
    # What cannot be JSON (a binary value in a broken row) cannot be compared later: the others must do.
    seen = {name: item.get(name) for name in _VERSION_ATTRIBUTES if "B" not in item.get(name, {})}
    key = json.dumps({"sortKey": item["sortKey"], **seen})
    _, namespace, timer_id = (*item["sortKey"]["S"].split("#", 2), None, None)[:3]
    return UnreadableRow(int(item["shard_id"]["N"]), key, reason, namespace, timer_id)


def _next_revision(revision: dict[str, str] | None) -> int:
    number = (revision or {}).get("N", "0")
    return int(number) + 1 if number.isdigit() else 1


def _glance(item: Item) -> Glance:
    return Glance(
        namespace=item.get("timer_namespace", {}).get("S"),
        callback_url=item.get("timer_callback_url", {}).get("S"),
        state=item.get("timer_state", {}).get("S"),
        execute_at=_instant(item, "timer_due_at") or _instant(item, "timer_execute_at"),
        rearmed_at=_instant(item, "timer_rearmed_at"),
        expire_after_ms=lenient(lambda: int(item["timer_expire_after_ms"]["N"]), None),
    )


def _instant(item: Item, name: str) -> datetime | None:
    return lenient(lambda: read_instant(item[name]["S"]), None)


def _position(key: Item) -> str:
    return write_cursor(key["timer_execute_at"]["S"], key["sortKey"]["S"])
