"""What becomes of a timer that a client stores, changes, rearms or deletes: judged alike for every store.

A store reads the timer in its place, asks here, and writes what is answered, fenced in its own way. ``stored`` is the
timer as it can be read or salvaged; None when there is none or it has expired. Pure.
"""

from __future__ import annotations

from datetime import datetime

from duetime.domain.timers import Rearm, Timer, TimerChange, changed, rearmed, repeats, replaced
from duetime.stores.port.timers import ChangeResult, ChangeStatus, PutMode, PutResult, PutStatus, TimerRef


def created(timer: Timer, now: datetime) -> Timer:
    """``timer`` as it is stored first: with the time of its unit of work."""
    if timer.created_at == timer.updated_at == now:
        return timer
    return Timer(  # ``replace`` takes twice as long, for each of a batch
        namespace=timer.namespace,
        timer_id=timer.timer_id,
        shard_id=timer.shard_id,
        content=timer.content,
        digest=timer.digest,
        state=timer.state,
        revision=timer.revision,
        firing_id=timer.firing_id,
        attempts=timer.attempts,
        next_attempt_at=timer.next_attempt_at,
        created_at=now,
        updated_at=now,
        fired_at=timer.fired_at,
        failure=timer.failure,
        expires_at=timer.expires_at,
        rearmed_at=timer.rearmed_at,
        attempt_log=timer.attempt_log,
        schedule=timer.schedule,
    )


def put_result(
    stored: Timer | None, timer: Timer, *, mode: PutMode, if_revision: int | None, now: datetime
) -> PutResult:
    """The timer of the result is to be written when the status is CREATED or REPLACED. ``now`` becomes its time."""
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
    """The timer of the result is to be written when the status is APPLIED. ``now`` becomes its time."""
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
    """The timer is to be removed when the status is APPLIED."""
    if stored is None:
        return ChangeResult(ChangeStatus.NOT_FOUND)
    if ref.if_revision not in (None, stored.revision):
        return ChangeResult(ChangeStatus.REVISION_MISMATCH, stored)
    return ChangeResult(ChangeStatus.APPLIED, stored)
