"""The order of one call's deliveries: each waits for the one before it, and makes the next one due when it has ended.

A delivery has ended when its timer has fired, has failed (a dead letter: docs/decisions/0015) or is not there: the
relay stores deliveries in order of sequence, so what is absent was not wanted, or has been removed. Since each
one waited for its own predecessor, the nearest one that has fired or waits tells of all before it. A dead letter does
not: those before it may have been redriven, which happens in order of sequence too (``app.redrives``).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from duetime.domain.event_webhooks import DeliveryId
from duetime.domain.namespaces import Namespace
from duetime.domain.timers import Rearm, Timer, TimerState
from duetime.stores.core.store import TimerStore
from duetime.stores.port.timers import ChangeStatus, TimerRef

WAKE_MARGIN = timedelta(seconds=30)
"""How long a delivery waits before it looks by itself whether its turn has come, which it learns at once unless a
process died at that moment."""
_MAX_STEPS_AHEAD = 8
"""Where types are left out, or dead letters lie between, how many sequence numbers further the next delivery is
looked for."""
_PENDING = (TimerState.SCHEDULED, TimerState.FIRING)


def predecessor(timers: TimerStore, namespace: Namespace, delivery: DeliveryId, *, now: datetime) -> Timer | None:
    """Return the timer that ``delivery`` has to wait for; None: its turn has come. Strongly consistent."""
    for sequence in range(delivery.sequence - 1, 0, -1):
        timer = timers.get(namespace, str(DeliveryId(delivery.call_id, sequence)), now=now)
        if timer is not None and timer.state is not TimerState.FAILED:
            return timer if timer.state in _PENDING else None
    return None


def look_again_at(waits_for: Timer, *, now: datetime) -> datetime:
    """Return when a delivery behind ``waits_for`` looks by itself again.

    A predecessor that was tried in vain is waited for with its back-off. One that only waits for others adds nothing:
    however many are in a row, what a crash left asleep looks within one margin.
    """
    at = waits_for.next_attempt_at or now
    return max(at, now) + WAKE_MARGIN if waits_for.attempts else max(at, now + WAKE_MARGIN)


def wake_next(timers: TimerStore, namespace: Namespace, ended: DeliveryId, *, now: datetime) -> Sequence[Timer]:
    """Make the delivery after ``ended`` due, if it waits; what was stored by that."""
    webhook = namespace.settings.webhook
    has_gaps = webhook is None or webhook.event_types is not None
    for step in range(1, _MAX_STEPS_AHEAD + 1):
        ref = TimerRef(str(DeliveryId(ended.call_id, ended.sequence + step)))
        (result,) = timers.rearm(namespace, [ref], rearm=Rearm.FIRE, now=now)
        if result.status is ChangeStatus.APPLIED and result.timer is not None:
            return [result.timer]
        is_dead_letter = result.timer is not None and result.timer.state is TimerState.FAILED
        if not (is_dead_letter or (has_gaps and result.status is ChangeStatus.NOT_FOUND)):
            break
    return []
