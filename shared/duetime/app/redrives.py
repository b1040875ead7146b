"""The rules of redriving failed timers: deliveries of a call in their order, and what keeps a timer from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from duetime.domain.errors import (
    AttemptInFlight,
    DuetimeError,
    RevisionMismatch,
    StoreRefused,
    TimerFinished,
    TimerNotFailed,
    TimerNotFound,
    TimerUnreadable,
)
from duetime.domain.event_webhooks import EVENTS_PREFIX, DeliveryId, read_delivery_id
from duetime.domain.namespaces import Namespace
from duetime.domain.timers import Rearm, Timer, TimerState
from duetime.stores.core.store import Store
from duetime.stores.port.timers import ChangeResult, ChangeStatus, TimerRef
from duetime.stores.refusals import apart


@dataclass(frozen=True, slots=True)
class RedrivePage:
    """What one bounded piece of a redrive did.

    ``skipped`` counts the failed timers that fit the filter and were not redriven: unreadable, refused by the
    database, or changed meanwhile. ``next_cursor`` is None when there is nothing left to look at.
    """

    redriven: tuple[Timer, ...]
    skipped: int
    next_cursor: str | None

    @property
    def examined(self) -> int:
        return len(self.redriven) + self.skipped


@dataclass(frozen=True, slots=True)
class RedrivenRefs:
    """``results``: one for each ref, in their order. ``redriven``: all that is scheduled by it, also what was not
    named and goes before."""

    results: list[ChangeResult]
    redriven: tuple[Timer, ...]


def redrive_refs(
    store: Store,
    namespace: Namespace,
    refs: Sequence[TimerRef],
    *,
    now: datetime,
    fits: Callable[[Timer], bool] = lambda _: True,
) -> RedrivenRefs:
    """Redrive the timers of ``refs``. Each timer is named once.

    Deliveries to a webhook keep the order of each call (``calls.webhook_order``): before a delivery those dead
    letters of its call are redriven that come before it and that ``fits``, the first one first. None becomes due
    before all that it has to wait for are scheduled again.
    """
    waves = _in_sequence(store, namespace, refs, fits, now) if namespace.name.startswith(EVENTS_PREFIX) else [refs]
    found: dict[str, ChangeResult] = {}
    for wave in waves:
        if wave:
            results = _rearm_each(store, namespace, wave, now)
            found |= {ref.timer_id: result for ref, result in zip(wave, results, strict=True)}
    redriven = tuple(
        result.timer
        for result in found.values()
        if result.status is ChangeStatus.APPLIED and result.timer is not None
    )
    return RedrivenRefs([found[ref.timer_id] for ref in refs], redriven)


def _rearm_each(store: Store, namespace: Namespace, refs: Sequence[TimerRef], now: datetime) -> list[ChangeResult]:
    """Redrive each of the timers that can be, whatever the database refuses of the others."""
    return apart(
        lambda some: store.timers.rearm(namespace, some, rearm=Rearm.REDRIVE, now=now),
        refs,
        lambda _: ChangeResult(ChangeStatus.REFUSED),
    )


def refused(timer_id: str) -> StoreRefused:
    return StoreRefused(f"the store refuses timer {timer_id!r}: it is too large, or its shard is full")


def in_order(timer_ids: Sequence[str]) -> list[str]:
    """Sort ``timer_ids`` so that the deliveries of one call are in their sequence: redriven a part at a time, none
    is met that was redriven because it goes before another. Other ids stay as they are, and come first."""

    def place(timer_id: str) -> tuple[str, int]:
        delivery = read_delivery_id(timer_id)
        return ("", 0) if delivery is None else (delivery.call_id, delivery.sequence)

    return sorted(timer_ids, key=place)


def _in_sequence(
    store: Store, namespace: Namespace, refs: Sequence[TimerRef], fits: Callable[[Timer], bool], now: datetime
) -> list[list[TimerRef]]:
    """Sort ``refs``, and what goes before them, into waves: of each call every one is in a later wave than those
    before it."""
    others: list[TimerRef] = []
    by_call: dict[str, dict[int, TimerRef]] = {}
    for ref in refs:
        delivery = read_delivery_id(ref.timer_id)
        if delivery is None:
            others.append(ref)
        else:
            by_call.setdefault(delivery.call_id, {})[delivery.sequence] = ref
    waves = [others]
    for call_id, of_call in by_call.items():
        for sequence in range(1, max(of_call)):
            if sequence not in of_call:
                timer_id = str(DeliveryId(call_id, sequence))
                timer = store.timers.get(namespace, timer_id, now=now)
                if timer is not None and timer.state is TimerState.FAILED and not timer.is_unreadable and fits(timer):
                    of_call[sequence] = TimerRef(timer_id, timer.revision)
        for at, sequence in enumerate(sorted(of_call)):
            if at == len(waves):
                waves.append([])
            waves[at].append(of_call[sequence])
    return waves


def refusal_to_redrive(namespace: Namespace, timer_id: str, result: ChangeResult) -> DuetimeError | None:
    """Return why a timer was not redriven; None when it was."""
    if result.status is ChangeStatus.WRONG_STATE and result.timer is not None:
        return TimerNotFailed(f"timer {timer_id!r} is {result.timer.state}: only a failed timer can be redriven")
    return _refusal(namespace, timer_id, result)


def refusal_to_fire(namespace: Namespace, timer_id: str, result: ChangeResult) -> DuetimeError | None:
    """Return why a timer was not made due; None when it was, or was due already."""
    if result.status is not ChangeStatus.WRONG_STATE or result.timer is None:
        return _refusal(namespace, timer_id, result)
    if result.timer.state.has_open_attempt:
        return AttemptInFlight(f"an attempt of timer {timer_id!r} is in flight")
    way_on = "redrive it" if result.timer.state is TimerState.FAILED else "replace it"
    return TimerFinished(f"timer {timer_id!r} is {result.timer.state}: {way_on} to have it fired again")


def refusal_to_cancel(namespace: Namespace, timer_id: str, result: ChangeResult) -> DuetimeError | None:
    """Return why a timer was not cancelled; None when it was, or was before."""
    if result.status is not ChangeStatus.WRONG_STATE or result.timer is None:
        return _refusal(namespace, timer_id, result)
    if result.timer.state is TimerState.WAITING:
        way_on = "nack with retry false ends it"
        return AttemptInFlight(f"timer {timer_id!r} waits for an answer of its receiver: {way_on}")
    if result.timer.state.has_open_attempt:
        return AttemptInFlight(f"an attempt of timer {timer_id!r} is in flight: cancel it when that has ended")
    return TimerFinished(f"timer {timer_id!r} is {result.timer.state}: it cannot be cancelled any more")


def _refusal(namespace: Namespace, timer_id: str, result: ChangeResult) -> DuetimeError | None:
    """Return why a timer was not rearmed, for the reasons that all ways have in common."""
    if result.status is ChangeStatus.APPLIED:
        return None
    if result.status is ChangeStatus.REVISION_MISMATCH:
        return RevisionMismatch(f"timer {timer_id!r} has another revision")
    if result.status is ChangeStatus.REFUSED:
        return refused(timer_id)
    if result.status is ChangeStatus.NOT_FOUND or result.timer is None:
        return TimerNotFound(namespace.name, timer_id)
    if result.status is ChangeStatus.UNREADABLE:
        return TimerUnreadable(f"timer {timer_id!r} cannot be read as it is stored: replace or delete it")
    return None
