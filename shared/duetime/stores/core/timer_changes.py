"""What clients do to single timers: put, get, update, rearm, delete.

``put_result`` and its like judge, by the timer that is stored, what becomes of it. They are pure. ``stored`` is the
timer as it can be read or salvaged; None when there is none or it has expired.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

from duetime.domain.answers import Answer, Refusal, answered
from duetime.domain.errors import StoreError
from duetime.domain.namespaces import Namespace
from duetime.domain.timers import Rearm, Timer, TimerChange, changed, rearmed, repeats, replaced
from duetime.stores import backend as writes
from duetime.stores.backend import Backend, Condition, WriteStatus
from duetime.stores.core.deciding import Decision, decide, find
from duetime.stores.core.instants import instant
from duetime.stores.core.schedules import removals_of_history
from duetime.stores.core.timer_codec import decode, decode_or_salvage, encode_changed, encode_new, key_of, keys_of
from duetime.stores.decoding import UnreadableError
from duetime.stores.entities import TIMER
from duetime.stores.entity import DAMAGED, Key, Row
from duetime.stores.port.timers import (
    AnswerResult,
    ChangeResult,
    ChangeStatus,
    PutMode,
    PutResult,
    PutStatus,
    TimerRef,
)
from duetime.stores.refusals import log_refusal

Judge = Callable[[int, Row | None], Decision[ChangeResult]]

_REVISION = TIMER.places["timer_revision"]
_SHARD = TIMER.places["shard_id"]
_LIKE = {PutStatus.CREATED: "timer in the place of an expired one", PutStatus.REPLACED: "replaced timer"}
_REFUSED_PUT = PutResult(PutStatus.REFUSED, None)


class TimerChanges:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def put(
        self, timers: Sequence[Timer], *, mode: PutMode, now: datetime, if_revision: int | None = None
    ) -> list[PutResult]:
        """Store first revisions (``domain.timers.new_timer``) as ``mode`` says.

        ``if_revision`` goes with REPLACE and a single timer; it is judged first. A replaced timer keeps
        ``created_at`` and counts its ``revision`` on; every other value is the new one's. An expired timer counts
        as absent.
        """
        if if_revision is not None:
            return self._put_known(timers, mode=mode, now=now, if_revision=if_revision)
        if any(timer.elsewhere for timer in timers):
            return self._put_resharded(timers, mode=mode, now=now)
        return self._put_new(timers, mode=mode, now=now)

    def _put_resharded(self, timers: Sequence[Timer], *, mode: PutMode, now: datetime) -> list[PutResult]:
        """Put those whose row stands elsewhere there. Where there is none elsewhere, there will be none."""
        keys = [(place, key) for place, timer in enumerate(timers) for key in _keys_elsewhere(timer)]
        rows = self._backend.read(TIMER, [key for _, key in keys], fields=TIMER.key)
        there = sorted({place for (place, _), row in zip(keys, rows, strict=True) if row is not None})
        new = sorted({*range(len(timers))} - {*there})
        results = dict(zip(new, self._put_new([timers[place] for place in new], mode=mode, now=now), strict=True))
        known = self._put_known([timers[place] for place in there], mode=mode, now=now, if_revision=None)
        results |= zip(there, known, strict=True)
        return [results[place] for place in range(len(timers))]

    def _put_new(self, timers: Sequence[Timer], *, mode: PutMode, now: datetime) -> list[PutResult]:
        # The fast way of both modes: no id is taken.
        if not timers:
            return []
        batch = self._backend.write(
            [writes.insert(TIMER, encode_new(timer), like="new timer") for timer in timers], now=now
        )
        at = now if batch.at_ms is None else instant(batch.at_ms)
        if all(written is writes.WRITTEN for written in batch.results):
            return [PutResult(PutStatus.CREATED, created(timer, at)) for timer in timers]
        results: dict[int, PutResult] = {}
        known: list[int] = []
        for place, (timer, written) in enumerate(zip(timers, batch.results, strict=True)):
            if written.is_written:
                results[place] = PutResult(PutStatus.CREATED, created(timer, at))
            elif written.status is WriteStatus.REFUSED and written.error is not None:
                results[place] = _refused_put(written.error)
            else:
                known.append(place)
        again = self._put_known([timers[place] for place in known], mode=mode, now=now, if_revision=None)
        results |= zip(known, again, strict=True)
        return [results[place] for place in range(len(timers))]

    def _put_known(
        self, timers: Sequence[Timer], *, mode: PutMode, now: datetime, if_revision: int | None
    ) -> list[PutResult]:
        def judge(place: int, row: Row | None) -> Decision[PutResult]:
            new = timers[place]
            if row is not None and row[_SHARD] != new.shard_id:
                new = replace(new, shard_id=row[_SHARD])
            result = put_result(present(row, now), new, mode=mode, if_revision=if_revision, now=now)
            timer = result.timer
            if timer is None or result.status not in (PutStatus.CREATED, PutStatus.REPLACED):
                return Decision(result)
            encoded = encode_new(timer) if result.status is PutStatus.CREATED else encode_changed(timer)
            if row is None:
                return Decision(result, writes.insert(TIMER, encoded))
            known, like = writes.known(TIMER, row), _like(_LIKE[result.status], row)
            return Decision(result, writes.replace(TIMER, encoded, unchanged(row), known=known, like=like))

        return decide(
            self._backend,
            TIMER,
            [key_of(timer) for timer in timers],
            judge,
            now=now,
            others={place: _keys_elsewhere(timer) for place, timer in enumerate(timers) if timer.elsewhere},
            finish=_finished_put,
            refused=_refused_put,
        )

    def get(self, namespace: Namespace, timer_id: str, *, now: datetime) -> Timer | None:
        """Return the timer as it is stored now, strongly consistent; None when there is none."""
        (row,) = find(self._backend, TIMER, [keys_of(namespace, timer_id, now)])
        return present(row, now)

    def update(
        self,
        namespace: Namespace,
        timer_id: str,
        change: TimerChange,
        *,
        firing_id: str,
        now: datetime,
        if_revision: int | None = None,
    ) -> ChangeResult:
        """Apply ``domain.timers.changed`` atomically: no concurrent write is lost or half-seen. What that raises is
        raised, and nothing is written.

        ``if_revision`` is judged first: a finished timer of another revision is a REVISION_MISMATCH.
        """

        def judge(_: int, row: Row | None) -> Decision[ChangeResult]:
            stored = present(row, now)
            result = update_result(stored, change, if_revision=if_revision, firing_id=firing_id, now=now)
            return _decision(result, row, is_change=result.status is ChangeStatus.APPLIED)

        (result,) = self._change(namespace, [timer_id], judge, now)
        return result

    def rearm(
        self,
        namespace: Namespace,
        refs: Sequence[TimerRef],
        *,
        rearm: Rearm,
        now: datetime,
        expires_at: datetime | None = None,
    ) -> list[ChangeResult]:
        """Apply ``domain.timers.rearmed`` to each, atomically: the timer is due at ``now``, or Cancelled.

        A cancelled timer is readable until ``expires_at``. Judged in this order: REVISION_MISMATCH, UNREADABLE,
        WRONG_STATE. Where ``rearmed`` changes nothing, the result is APPLIED and nothing is written. Of several
        redrives at once, one is APPLIED.
        """

        def judge(place: int, row: Row | None) -> Decision[ChangeResult]:
            result, is_change = rearm_result(
                present(row, now), _readable(row), refs[place], rearm, now=now, expires_at=expires_at
            )
            return _decision(result, row, is_change=is_change)

        return self._change(namespace, [ref.timer_id for ref in refs], judge, now)

    def answer(self, namespace: Namespace, timer_id: str, answer: Answer, *, now: datetime) -> AnswerResult:
        """Apply ``domain.answers.answered`` atomically. Where it changes nothing, nothing is written."""

        def judge(_: int, row: Row | None) -> Decision[AnswerResult]:
            stored = None if present(row, now) is None else _readable(row)
            if row is None or stored is None:
                return Decision(None)
            timer = answered(stored, answer, now=now)
            if isinstance(timer, Refusal) or timer is stored:
                return Decision(timer)
            return Decision(timer, writes.difference(TIMER, row, encode_changed(timer), unchanged(row)))

        key, *others = keys_of(namespace, timer_id, now)
        (result,) = decide(self._backend, TIMER, [key], judge, now=now, others={0: others})
        return result

    def delete(self, namespace: Namespace, refs: Sequence[TimerRef], *, now: datetime) -> list[ChangeResult]:
        """Remove timers in any state. APPLIED carries the timer as it was, where that is known (``ChangeResult``)."""

        def judge(place: int, row: Row | None) -> Decision[ChangeResult]:
            result = delete_result(present(row, now), refs[place])
            if result.status is not ChangeStatus.APPLIED or row is None:
                return Decision(result)
            known, like = writes.known(TIMER, row), _like("timer removed", row)
            removal = writes.delete(TIMER, TIMER.key_of(row), unchanged(row), known=known, like=like)
            return Decision(result, removal)

        keys, others = _places(namespace, [ref.timer_id for ref in refs], now)
        results = decide(self._backend, TIMER, keys, judge, now=now, others=others, refused=_refused_change)
        removed = [each.timer for each in results if each.status is ChangeStatus.APPLIED and each.timer is not None]
        lines = [write for timer in removed if timer.is_schedule for write in removals_of_history(timer)]
        if lines:
            self._backend.write(lines, now=now)
        return results

    def _change(
        self, namespace: Namespace, timer_ids: Sequence[str], judge: Judge, now: datetime
    ) -> list[ChangeResult]:
        keys, others = _places(namespace, timer_ids, now)
        return decide(
            self._backend,
            TIMER,
            keys,
            judge,
            now=now,
            others=others,
            finish=_finished_change,
            refused=_refused_change,
        )


def present(row: Row | None, now: datetime) -> Timer | None:
    """Return the timer, readable or not; None when there is none or it has expired."""
    timer = None if row is None else decode_or_salvage(row)
    return None if timer is None or timer.is_expired(now) else timer


def unchanged(row: Row) -> Condition:
    """Return the condition that a row is as it was read."""
    return Condition("timer_revision", row[_REVISION])


def _like(word: str, row: Row) -> str | None:
    """Return ``word`` for a row that is like most."""
    return None if row[_REVISION] is DAMAGED else word


def _places(namespace: Namespace, timer_ids: Sequence[str], now: datetime) -> tuple[list[Key], dict[int, list[Key]]]:
    """Return the first key of each timer, and by place the others (``decide``)."""
    keys = [keys_of(namespace, timer_id, now) for timer_id in timer_ids]
    return [each[0] for each in keys], {place: each[1:] for place, each in enumerate(keys)}


def _keys_elsewhere(timer: Timer) -> list[Key]:
    return [(shard_id, timer.namespace, timer.timer_id) for shard_id in timer.elsewhere]


def _readable(row: Row | None) -> Timer | None:
    try:
        return None if row is None else decode(row)
    except UnreadableError:
        return None


def _decision(result: ChangeResult, row: Row | None, *, is_change: bool) -> Decision[ChangeResult]:
    if not is_change or row is None or result.timer is None:
        return Decision(result)
    return Decision(result, writes.difference(TIMER, row, encode_changed(result.timer), unchanged(row)))


def _finished_put(result: PutResult, at_ms: int) -> PutResult:
    timer = result.timer
    if timer is None:
        return result
    if result.status is PutStatus.CREATED:
        return PutResult(result.status, created(timer, instant(at_ms)))
    return PutResult(result.status, replace(timer, updated_at=instant(at_ms)))


def _finished_change(result: ChangeResult, at_ms: int) -> ChangeResult:
    timer = result.timer
    return result if timer is None else ChangeResult(result.status, replace(timer, updated_at=instant(at_ms)))


def _refused_put(error: StoreError) -> PutResult:
    log_refusal(error)
    return _REFUSED_PUT


def _refused_change(error: StoreError) -> ChangeResult:
    log_refusal(error)
    return ChangeResult(ChangeStatus.REFUSED)


def created(timer: Timer, now: datetime) -> Timer:
    """Return ``timer`` as it is stored first: with the time of its unit of work."""
    # ``replace`` takes eight times as long, for each of a batch.
    stored = Timer.__new__(Timer)
    vars(stored).update(vars(timer), created_at=now, updated_at=now)
    return stored


def put_result(
    stored: Timer | None, timer: Timer, *, mode: PutMode, if_revision: int | None, now: datetime
) -> PutResult:
    """Decide a put. The timer of the result is to be written when the status is CREATED or REPLACED, at ``now``."""
    if if_revision is not None and (stored is None or stored.revision != if_revision):
        return PutResult(PutStatus.REVISION_MISMATCH, stored)
    if stored is None:
        return PutResult(PutStatus.CREATED, created(timer, now))
    if mode is PutMode.REPLACE:
        if repeats(stored, timer):
            return PutResult(PutStatus.UNCHANGED, stored)
        return PutResult(PutStatus.REPLACED, replaced(stored, timer, updated_at=now))
    is_same = stored.digest == timer.digest
    return PutResult(PutStatus.UNCHANGED if is_same else PutStatus.CONFLICT, stored)


def update_result(
    stored: Timer | None, change: TimerChange, *, if_revision: int | None, firing_id: str, now: datetime
) -> ChangeResult:
    """Decide an update. The timer of the result is to be written when the status is APPLIED, at ``now``."""
    if stored is None:
        return ChangeResult(ChangeStatus.NOT_FOUND)
    if if_revision not in (None, stored.revision):
        return ChangeResult(ChangeStatus.REVISION_MISMATCH, stored)
    if stored.state.is_finished:
        return ChangeResult(ChangeStatus.FINISHED, stored)
    return ChangeResult(ChangeStatus.APPLIED, changed(stored, change, firing_id=firing_id, now=now))


def rearm_result(
    stored: Timer | None,
    readable: Timer | None,
    ref: TimerRef,
    rearm: Rearm,
    *,
    now: datetime,
    expires_at: datetime | None,
) -> tuple[ChangeResult, bool]:
    """And whether the timer of the result is to be written. ``readable``: the timer if all of it can be read.

    It becomes due at the caller's ``now``, by which pollers judge what is due.
    """
    if stored is None:
        return ChangeResult(ChangeStatus.NOT_FOUND), False
    if ref.if_revision not in (None, stored.revision):
        return ChangeResult(ChangeStatus.REVISION_MISMATCH, stored), False
    if readable is None:
        return ChangeResult(ChangeStatus.UNREADABLE, stored), False
    timer = rearmed(readable, rearm, now=now, expires_at=expires_at)
    if timer is None:
        return ChangeResult(ChangeStatus.WRONG_STATE, readable), False
    return ChangeResult(ChangeStatus.APPLIED, timer), timer is not readable


def delete_result(stored: Timer | None, ref: TimerRef) -> ChangeResult:
    """Decide a delete. The timer is to be removed when the status is APPLIED."""
    if stored is None:
        return ChangeResult(ChangeStatus.NOT_FOUND)
    if ref.if_revision not in (None, stored.revision):
        return ChangeResult(ChangeStatus.REVISION_MISMATCH, stored)
    return ChangeResult(ChangeStatus.APPLIED, stored)
