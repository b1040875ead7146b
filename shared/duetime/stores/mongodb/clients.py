"""What clients do to single timers: put, get, update, rearm, delete."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from duetime.domain.namespaces import Namespace
from duetime.domain.timers import Rearm, Timer, TimerChange
from duetime.stores.client_results import created, delete_result, put_result, rearm_result, update_result
from duetime.stores.mongodb.batches import Batches
from duetime.stores.mongodb.database import Database
from duetime.stores.mongodb.errors import translated
from duetime.stores.mongodb.timer_documents import UnreadableError, decode, decode_or_salvage, encode
from duetime.stores.mongodb.timers import Decision, Key, Timers, insertion, removal, replacement
from duetime.stores.mongodb.url import Document
from duetime.stores.port.timers import ChangeResult, ChangeStatus, PutMode, PutResult, PutStatus, TimerRef


class Clients:
    def __init__(self, database: Database) -> None:
        self._batches = Batches(database)
        self._timers = Timers(database)

    @translated
    def put_timers(
        self,
        timers: Sequence[Timer],
        *,
        mode: PutMode,
        now: datetime,
        if_revision: int | None = None,
    ) -> list[PutResult]:
        given = [created(timer, now) for timer in timers]
        is_new = [False] * len(given)
        if if_revision is None:
            # The fast way of both modes: no id is taken.
            is_new = self._batches.run([insertion(encode(timer)) for timer in given])
        known = [timer for timer, new in zip(given, is_new, strict=True) if not new]
        results = iter(self._put_known(known, mode=mode, now=now, if_revision=if_revision))
        return [
            PutResult(PutStatus.CREATED, timer) if new else next(results)
            for timer, new in zip(given, is_new, strict=True)
        ]

    def _put_known(
        self, timers: Sequence[Timer], *, mode: PutMode, now: datetime, if_revision: int | None
    ) -> list[PutResult]:
        def judge(place: int, document: Document | None) -> Decision[PutResult]:
            return _put_decision(document, timers[place], mode=mode, if_revision=if_revision, now=now)

        return self._timers.decide([_key_of(timer) for timer in timers], judge)

    @translated
    def get_timer(self, namespace: Namespace, timer_id: str, *, now: datetime) -> Timer | None:
        return _present(self._timers.find(_key(namespace, timer_id)), now)

    @translated
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
        def judge(_: int, document: Document | None) -> Decision[ChangeResult]:
            result = update_result(
                _present(document, now), change, if_revision=if_revision, firing_id=firing_id, now=now
            )
            if result.status is not ChangeStatus.APPLIED or document is None or result.timer is None:
                return Decision(result)
            return Decision(result, replacement(document, encode(result.timer)))

        (result,) = self._timers.decide([_key(namespace, timer_id)], judge)
        return result

    @translated
    def rearm_timers(
        self, namespace: Namespace, refs: Sequence[TimerRef], *, rearm: Rearm, now: datetime
    ) -> list[ChangeResult]:
        return self._timers.decide(
            [_key(namespace, ref.timer_id) for ref in refs],
            lambda place, document: _rearm_decision(document, refs[place], rearm, now=now),
        )

    @translated
    def delete_timers(self, namespace: Namespace, refs: Sequence[TimerRef], *, now: datetime) -> list[ChangeResult]:
        def judge(place: int, document: Document | None) -> Decision[ChangeResult]:
            result = delete_result(_present(document, now), refs[place])
            if result.status is not ChangeStatus.APPLIED or document is None:
                return Decision(result)
            return Decision(result, removal(document))

        return self._timers.decide([_key(namespace, ref.timer_id) for ref in refs], judge)


def _key(namespace: Namespace, timer_id: str) -> Key:
    return namespace.shard_of(timer_id), namespace.name, timer_id


def _key_of(timer: Timer) -> Key:
    return timer.shard_id, timer.namespace, timer.timer_id


def _present(document: Document | None, now: datetime) -> Timer | None:
    """The timer, readable or not; None when there is none or it has expired."""
    timer = None if document is None else decode_or_salvage(document)
    return None if timer is None or timer.is_expired(now) else timer


def _put_decision(
    document: Document | None, given: Timer, *, mode: PutMode, if_revision: int | None, now: datetime
) -> Decision[PutResult]:
    """What becomes of ``given``; ``document`` is in its place, perhaps with a timer that has expired."""
    result = put_result(_present(document, now), given, mode=mode, if_revision=if_revision, now=now)
    timer = result.timer
    if result.status not in (PutStatus.CREATED, PutStatus.REPLACED) or timer is None:
        return Decision(result)
    return Decision(result, insertion(encode(timer)) if document is None else replacement(document, encode(timer)))


def _rearm_decision(
    document: Document | None, ref: TimerRef, rearm: Rearm, *, now: datetime
) -> Decision[ChangeResult]:
    readable = None if document is None else _readable(document)
    result, is_change = rearm_result(_present(document, now), readable, ref, rearm, now=now)
    if not is_change or document is None or result.timer is None:
        return Decision(result)
    return Decision(result, replacement(document, encode(result.timer)))


def _readable(document: Document) -> Timer | None:
    try:
        return decode(document)
    except UnreadableError:
        return None
