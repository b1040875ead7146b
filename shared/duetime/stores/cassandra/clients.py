"""What clients do to single timers: put, get, update, rearm, delete; and timers that come from another store."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from duetime.domain.namespaces import Namespace
from duetime.domain.timers import Rearm, Timer, TimerChange
from duetime.stores.cassandra.changes import Change, ttl_seconds
from duetime.stores.cassandra.requests import Row
from duetime.stores.cassandra.timer_rows import Key, UnreadableError, decode, decode_or_salvage, encode, key_of
from duetime.stores.cassandra.timers import Decision, Timers
from duetime.stores.client_results import created, delete_result, put_result, rearm_result, update_result
from duetime.stores.port.timers import ChangeResult, ChangeStatus, PutMode, PutResult, PutStatus, TimerRef
from duetime.stores.port.transfer import LoadStatus


class Clients:
    def __init__(self, timers: Timers) -> None:
        self._timers = timers

    def put_timers(
        self,
        timers: Sequence[Timer],
        *,
        mode: PutMode,
        now: datetime,
        if_revision: int | None = None,
    ) -> list[PutResult]:
        given = [created(timer, now) for timer in timers]

        def judge(place: int, row: Row | None) -> Decision[PutResult]:
            return _put_decision(row, given[place], mode=mode, if_revision=if_revision, now=now)

        return self._timers.decide([key_of(timer) for timer in given], judge, are_new=if_revision is None)

    def get_timer(self, namespace: Namespace, timer_id: str, *, now: datetime) -> Timer | None:
        return _present(self._timers.find(_key(namespace, timer_id)), now)

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
        def judge(_: int, row: Row | None) -> Decision[ChangeResult]:
            result = update_result(_present(row, now), change, if_revision=if_revision, firing_id=firing_id, now=now)
            if result.status is not ChangeStatus.APPLIED or row is None or result.timer is None:
                return Decision(result)
            return Decision(result, replacement(row, result.timer, now))

        (result,) = self._timers.decide([_key(namespace, timer_id)], judge)
        return result

    def rearm_timers(
        self, namespace: Namespace, refs: Sequence[TimerRef], *, rearm: Rearm, now: datetime
    ) -> list[ChangeResult]:
        return self._timers.decide(
            [_key(namespace, ref.timer_id) for ref in refs],
            lambda place, row: _rearm_decision(row, refs[place], rearm, now=now),
        )

    def delete_timers(self, namespace: Namespace, refs: Sequence[TimerRef], *, now: datetime) -> list[ChangeResult]:
        def judge(place: int, row: Row | None) -> Decision[ChangeResult]:
            result = delete_result(_present(row, now), refs[place])
            if result.status is not ChangeStatus.APPLIED or row is None:
                return Decision(result)
            return Decision(result, replacement(row, None, now))

        return self._timers.decide([_key(namespace, ref.timer_id) for ref in refs], judge)

    def load_timers(self, timers: Sequence[Timer], *, now: datetime) -> list[LoadStatus]:
        def judge(place: int, row: Row | None) -> Decision[LoadStatus]:
            timer = timers[place]
            if row is None:
                return Decision(LoadStatus.LOADED, insertion(timer, now))
            if decode_or_salvage(row).is_expired(now):
                return Decision(LoadStatus.LOADED, replacement(row, timer, now))
            return Decision(LoadStatus.PRESENT if _is_same(row, timer) else LoadStatus.CONFLICT)

        return self._timers.decide([key_of(timer) for timer in timers], judge, are_new=True)


def insertion(timer: Timer, now: datetime) -> Change:
    ttl = ttl_seconds(timer.expires_at, now)
    return Change(key=key_of(timer), before=None, after=encode(timer), ttl_seconds=ttl)


def replacement(row: Row, timer: Timer | None, now: datetime) -> Change:
    """``timer`` in the place of the stored row, if that is still as it was read; None: nothing."""
    return Change(
        key=(row["shard_id"], row["timer_namespace"], row["timer_id"]),
        before=row,
        after=None if timer is None else encode(timer),
        if_write_id=row["write_id"],
        ttl_seconds=0 if timer is None else ttl_seconds(timer.expires_at, now),
    )


def _key(namespace: Namespace, timer_id: str) -> Key:
    return namespace.shard_of(timer_id), namespace.name, timer_id


def _present(row: Row | None, now: datetime) -> Timer | None:
    """The timer, readable or not; None when there is none or it has expired."""
    timer = None if row is None else decode_or_salvage(row)
    return None if timer is None or timer.is_expired(now) else timer


def _is_same(row: Row, timer: Timer) -> bool:
    return _readable(row) == timer


def _put_decision(
    row: Row | None, given: Timer, *, mode: PutMode, if_revision: int | None, now: datetime
) -> Decision[PutResult]:
    """What becomes of ``given``; ``row`` is in its place, perhaps with a timer that has expired."""
    result = put_result(_present(row, now), given, mode=mode, if_revision=if_revision, now=now)
    timer = result.timer
    if result.status not in (PutStatus.CREATED, PutStatus.REPLACED) or timer is None:
        return Decision(result)
    return Decision(result, insertion(timer, now) if row is None else replacement(row, timer, now))


def _rearm_decision(row: Row | None, ref: TimerRef, rearm: Rearm, *, now: datetime) -> Decision[ChangeResult]:
    readable = None if row is None else _readable(row)
    result, is_change = rearm_result(_present(row, now), readable, ref, rearm, now=now)
    if not is_change or row is None or result.timer is None:
        return Decision(result)
    return Decision(result, replacement(row, result.timer, now))


def _readable(row: Row) -> Timer | None:
    try:
        return decode(row)
    except UnreadableError:
        return None
