"""Schedules in virtual time: each occurrence has one fate, over retries, slow receivers, outages and crashes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from duetime.app.schedules import ScheduleChange, Schedules
from duetime.domain.errors import StoreUnavailable
from duetime.domain.ids import occurrence_timer_id, schedule_timer_id
from duetime.domain.namespaces import Pause
from duetime.domain.occurrences import KEPT_OCCURRENCES, OccurrenceRecord, OccurrenceState
from duetime.domain.schedule_timers import new_schedule_timer
from duetime.domain.schedules import Overlap, Schedule, ScheduleEnd, SchedulePolicy, new_schedule
from duetime.domain.timers import Timer, TimerState
from duetime.domain.times import MAX_INSTANT, format_instant
from duetime.recurrence.spec import TimingSpec
from duetime.recurrence.stored import occurrences_by, timing_json
from duetime.stores.core.store import Store
from duetime.stores.port.timers import TimerRef
from duetime.testing.contract.builders import make_content, make_namespace
from duetime.testing.virtual_time import VirtualClock
from tests.support.clock import NOW as START
from tests.support.engine import at, make_poller, put, run, stored
from tests.support.parts import overlaid
from tests.support.scripted_sender import Script, ScriptedSender

NAMESPACE = make_namespace("default")
RETRIED = '{"maxAttempts": 5, "initialInterval": "4s", "maxInterval": "4s", "jitter": "none"}'
TWICE = '{"maxAttempts": 2, "initialInterval": "4s", "maxInterval": "4s", "jitter": "none"}'
State = OccurrenceState


def make_schedule(
    *,
    every_seconds: float = 10,
    schedule_id: str = "s1",
    pause: Pause | None = None,
    end_seconds: float | None = None,
    policy: SchedulePolicy | None = None,
    **content: Any,
) -> Timer:
    """Its first occurrence is ``every_seconds`` after START, which is where its interval is anchored."""
    spec = TimingSpec(
        every_ms=int(every_seconds * 1000), anchor=START, end_at=None if end_seconds is None else at(end_seconds)
    )
    schedule = new_schedule(
        policy or SchedulePolicy(), occurrences_by(spec, schedule_id, lambda _: None), after=START
    )
    schedule = replace(schedule, pause=pause)
    given = make_content(**({"timing_json": timing_json(spec), "retry_policy_json": RETRIED} | content))
    return new_schedule_timer(NAMESPACE, schedule_id, given, schedule, digest="d", now=START)


def state_of(store: Store, clock: VirtualClock) -> Schedule:
    schedule = stored(store, schedule_timer_id("s1"), clock).schedule
    assert schedule is not None
    return schedule


def history(store: Store, clock: VirtualClock) -> list[OccurrenceRecord]:
    """The first line first."""
    return store.schedules.history(stored(store, schedule_timer_id("s1"), clock), limit=KEPT_OCCURRENCES)[::-1]


def lines(store: Store, clock: VirtualClock) -> list[tuple[float, State]]:
    """When each was scheduled, in seconds from START, and what became of it."""
    return [((line.scheduled_at - START).total_seconds(), line.state) for line in history(store, clock)]


def sent(sender: ScriptedSender) -> list[float]:
    """For when each callback was scheduled, in seconds from START."""
    scheduled = [datetime.fromisoformat(str(body["scheduledAt"])) for body in sender.received]
    return [(each - START).total_seconds() for each in scheduled]


def answering(scripts: Callable[[float, int], Script | None]) -> ScriptedSender:
    """A receiver that answers by the scheduled time in seconds from START and the attempt; None: 200 at once."""

    def script(body: dict[str, Any]) -> Script:
        seconds = (datetime.fromisoformat(body["scheduledAt"]) - START).total_seconds()
        return scripts(seconds, body["attempt"]) or Script()

    return ScriptedSender(script)


def test_a_schedule_fires_at_each_of_its_times(store: Store, clock: VirtualClock) -> None:
    put(store, [make_schedule(payload_json='{"n": 1.10}')], START)
    sender = ScriptedSender()
    poller = make_poller(store, sender, clock)

    run(clock, poller, 45)

    assert sent(sender) == [10, 20, 30, 40]
    assert [body["occurrence"] for body in sender.received] == [1, 2, 3, 4]
    first = sender.received[0]
    assert first["scheduleId"] == "s1"
    assert first["payload"] == {"n": 1.1}
    assert "timerId" not in first
    assert len(set(sender.webhook_ids)) == 4
    assert lines(store, clock) == [(each, State.FIRED) for each in (10, 20, 30, 40)]
    line = history(store, clock)[0]
    assert (line.attempts, line.started_at is not None, line.failure) == (1, True, None)
    assert poller.stats()["fired"] == 4
    lags = [datetime.fromisoformat(str(body["firedAt"])) for body in sender.received]
    assert all(fired - at(10 * number) < timedelta(seconds=0.5) for number, fired in enumerate(lags, 1))


def test_a_schedule_by_the_second_is_not_late(store: Store, clock: VirtualClock) -> None:
    put(store, [make_schedule(every_seconds=1)], START)
    sender = ScriptedSender()

    run(clock, make_poller(store, sender, clock), 30.5)

    assert sent(sender) == [*range(1, 31)]
    fired = [(datetime.fromisoformat(str(body["firedAt"])) - START).total_seconds() for body in sender.received]
    assert max(late - due for late, due in zip(fired, sent(sender), strict=True)) < 0.5


class _SetBack(VirtualClock):
    """A clock that somebody sets back by 25 s when it shows 35."""

    def now(self) -> datetime:
        shown = super().now()
        return shown if shown < at(35) else shown - timedelta(seconds=25)


def test_a_clock_that_is_set_back_repeats_and_loses_nothing(store: Store) -> None:
    clock = _SetBack(START)
    put(store, [make_schedule()], START)
    sender = ScriptedSender()

    run(clock, make_poller(store, sender, clock), 80)

    assert sent(sender) == [10, 20, 30, 40, 50]
    assert lines(store, clock) == [(each, State.FIRED) for each in (10, 20, 30, 40, 50)]


def test_a_retry_does_not_delay_the_next_occurrence(store: Store, clock: VirtualClock) -> None:
    put(store, [make_schedule()], START)
    sender = answering(lambda seconds, attempt: Script(status=503) if seconds == 10 and attempt < 4 else None)
    poller = make_poller(store, sender, clock)

    run(clock, poller, 45)

    assert Counter(sent(sender)) == {10: 4, 20: 1, 30: 1, 40: 1}
    assert sent(sender)[:3] == [10, 10, 10] or 20 in sent(sender)[:4]
    of_first = [body for body, seconds in zip(sender.received, sent(sender), strict=True) if seconds == 10]
    assert [body["attempt"] for body in of_first] == [1, 2, 3, 4]
    assert {body["occurrence"] for body in of_first} == {1}
    assert len(set(sender.webhook_ids)) == 4
    assert lines(store, clock) == [(each, State.FIRED) for each in (10, 20, 30, 40)]
    assert history(store, clock)[0].attempts == 4
    own = stored(store, occurrence_timer_id("s1", at(10)), clock)
    assert (own.state, own.attempts) == (TimerState.FIRED, 4)
    assert (poller.stats()["fired"], poller.stats()["retried"]) == (4, 3)


def test_an_occurrence_that_takes_long_does_not_delay_the_next(store: Store, clock: VirtualClock) -> None:
    put(store, [make_schedule()], START)
    sender = answering(lambda seconds, attempt: Script(delay_seconds=25) if seconds == 10 else None)
    poller = make_poller(store, sender, clock)

    async def watch() -> None:
        await asyncio.sleep(22)
        seen.append(lines(store, clock))
        await asyncio.sleep(23)

    seen: list[list[tuple[float, State]]] = []
    run(clock, poller, watch)

    assert seen == [[(10, State.ONGOING), (20, State.FIRED)]]
    assert sorted(sent(sender)) == [10, 20, 30, 40]
    assert lines(store, clock) == [(each, State.FIRED) for each in (10, 20, 30, 40)]
    assert poller.stats()["parked"] == 1


def test_a_failure_for_good_is_one_of_the_occurrence(store: Store, clock: VirtualClock) -> None:
    put(store, [make_schedule()], START)
    sender = answering(lambda seconds, attempt: Script(status=400) if seconds == 20 else None)
    poller = make_poller(store, sender, clock)

    run(clock, poller, 35)

    assert lines(store, clock) == [(10, State.FIRED), (20, State.FAILED), (30, State.FIRED)]
    failure = history(store, clock)[1].failure
    assert failure is not None
    assert failure.status == 400
    assert (poller.stats()["fired"], poller.stats()["failed"]) == (2, 1)


def test_it_ends_after_its_last_firing_and_stays(store: Store, clock: VirtualClock) -> None:
    put(store, [make_schedule(policy=SchedulePolicy(max_firings=2))], START)
    sender = ScriptedSender()

    run(clock, make_poller(store, sender, clock), 45)

    assert sent(sender) == [10, 20]
    assert state_of(store, clock).end is ScheduleEnd.MAX_FIRINGS
    ended = stored(store, schedule_timer_id("s1"), clock)
    assert (ended.state, ended.next_attempt_at) == (TimerState.FIRED, None)


def test_it_ends_when_no_time_is_left(store: Store, clock: VirtualClock) -> None:
    put(store, [make_schedule(end_seconds=25)], START)
    sender = ScriptedSender()

    run(clock, make_poller(store, sender, clock), 45)

    assert sent(sender) == [10, 20]
    assert state_of(store, clock).end is ScheduleEnd.NO_OCCURRENCE


def test_a_paused_schedule_waits(store: Store, clock: VirtualClock) -> None:
    paused = make_schedule(pause=Pause(START, "a reason"))
    put(store, [paused], START)
    sender = ScriptedSender()

    run(clock, make_poller(store, sender, clock), 45)

    assert sender.received == []
    assert stored(store, schedule_timer_id("s1"), clock) == paused
    assert paused.next_attempt_at == MAX_INSTANT


def test_the_receiver_does_not_choose_the_next_time(store: Store, clock: VirtualClock) -> None:
    put(store, [make_schedule()], START)
    answer = b'{"nextExecuteAt": "%s"}' % format_instant(at(12)).encode()
    sender = ScriptedSender(lambda body: Script(body=answer))

    run(clock, make_poller(store, sender, clock), 35)

    assert sent(sender) == [10, 20, 30]


# Where the answer finds the occurrence: on the schedule's own row, or as a timer of its own, retried or parked.
WHERE = {"at once": (1, 0.0), "retried": (2, 0.0), "parked": (1, 3.0)}


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ('{"pause": true}', "the receiver paused the schedule"),
        ('{"pause": "full\\u0000"}', "the receiver paused the schedule: full"),
    ],
)
def test_its_receiver_may_pause_it(store: Store, clock: VirtualClock, where: str, answer: str, reason: str) -> None:
    attempt, delay = WHERE[where]
    put(store, [make_schedule()], START)
    asked = Script(body=answer.encode(), delay_seconds=delay)
    sender = answering(
        lambda seconds, number: (asked if number == attempt else Script(status=503)) if seconds == 20 else None
    )

    run(clock, make_poller(store, sender, clock), 45)

    assert [each for each in sent(sender) if each != 20] == [10]
    schedule = state_of(store, clock)
    assert schedule.pause is not None
    assert schedule.pause.reason == reason
    assert (schedule.end, schedule.number) == (None, 3)
    assert lines(store, clock) == [(10, State.FIRED), (20, State.FIRED)]
    assert reason in (history(store, clock)[1].attempt_log or "")


@pytest.mark.parametrize("where", WHERE)
def test_its_receiver_may_end_it(store: Store, clock: VirtualClock, where: str) -> None:
    attempt, delay = WHERE[where]
    put(store, [make_schedule()], START)
    asked = Script(body=b'{"end": true, "pause": true}', delay_seconds=delay)
    sender = answering(
        lambda seconds, number: (asked if number == attempt else Script(status=503)) if seconds == 20 else None
    )

    run(clock, make_poller(store, sender, clock), 45)

    assert [each for each in sent(sender) if each != 20] == [10]
    schedule = state_of(store, clock)
    assert (schedule.end, schedule.pending, schedule.pause) == (ScheduleEnd.RECEIVER, None, None)
    assert stored(store, schedule_timer_id("s1"), clock).next_attempt_at is None
    assert lines(store, clock) == [(10, State.FIRED), (20, State.FIRED)]


def test_a_pause_holds_though_the_occurrence_is_not_done(store: Store, clock: VirtualClock) -> None:
    put(store, [make_schedule()], START)
    sender = answering(lambda _, attempt: Script(body=b'{"ok": false, "pause": true}') if attempt == 1 else None)

    run(clock, make_poller(store, sender, clock), 45)

    assert sent(sender) == [10, 10]
    assert state_of(store, clock).pause is not None
    assert lines(store, clock) == [(10, State.FIRED)]


@pytest.mark.parametrize("body", ['{"pause": 1}', '{"end": "yes"}', '{"pause": false, "end": null}', '["pause"]'])
def test_what_its_receiver_cannot_ask_is_not_done(store: Store, clock: VirtualClock, body: str) -> None:
    put(store, [make_schedule()], START)
    sender = answering(lambda *_: Script(body=body.encode()))

    run(clock, make_poller(store, sender, clock), 25)

    assert lines(store, clock) == [(10, State.FIRED), (20, State.FIRED)]


@pytest.mark.parametrize("status", [400, 503])
def test_it_is_paused_after_failures_in_a_row(store: Store, clock: VirtualClock, status: int) -> None:
    """With 503 each fails as a timer of its own, after its attempts; one in between is delivered."""
    put(store, [make_schedule(policy=SchedulePolicy(pause_after=2), retry_policy_json=TWICE)], START)
    sender = answering(lambda seconds, _: Script(status=200 if seconds == 20 else status))

    run(clock, make_poller(store, sender, clock), 75)

    assert sorted(set(sent(sender))) == [10, 20, 30, 40]
    schedule = state_of(store, clock)
    assert schedule.pause is not None
    assert schedule.pause.reason == "the last 2 occurrences have failed (pauseAfter)"
    assert [state for _, state in lines(store, clock)] == [State.FAILED, State.FIRED, State.FAILED, State.FAILED]


def test_the_failure_of_an_earlier_one_does_not_repeat_the_one_in_flight(store: Store, clock: VirtualClock) -> None:
    """The first one fails for good at 21 s, while the second is sent from 20 s to 21.9 s."""
    policy = TWICE.replace("4s", "10s")
    put(store, [make_schedule(policy=SchedulePolicy(pause_after=5), retry_policy_json=policy)], START)
    scripts = {10: Script(status=503, delay_seconds=0.5), 20: Script(delay_seconds=1.9)}
    sender = answering(lambda seconds, _: scripts.get(int(seconds)))

    run(clock, make_poller(store, sender, clock), 45)

    assert Counter(sent(sender)) == {10: 2, 20: 1, 30: 1, 40: 1}


@pytest.mark.parametrize("failures", [(False, False), (True, False), (False, True, True, False)])
def test_a_store_that_fails_neither_loses_a_failure_nor_counts_it_twice(
    store: Store, clock: VirtualClock, failures: tuple[bool, ...]
) -> None:
    """Of the changes of the schedule: those that fail are made, and their answers are lost."""
    put(store, [make_schedule(policy=SchedulePolicy(pause_after=3), retry_policy_json=TWICE)], START)
    left = list(failures)

    def change_of(*given: Any, **more: Any) -> Any:
        result = store.schedules.change_of(*given, **more)
        if left and left.pop(0):
            raise StoreUnavailable("lost")
        return result

    failing = overlaid(store, schedules=overlaid(store.schedules, change_of=change_of))

    run(clock, make_poller(failing, answering(lambda *_: Script(status=503)), clock), 55)

    schedule = state_of(store, clock)
    assert schedule.pause is not None
    assert schedule.pause.reason == "the last 3 occurrences have failed (pauseAfter)"
    assert [state for _, state in lines(store, clock)] == [State.FAILED] * 3


def test_an_occurrence_of_a_schedule_that_was_removed_does_not_pause_the_next_one(
    store: Store, clock: VirtualClock
) -> None:
    put(store, [make_schedule()], START)
    sender = answering(lambda seconds, _: Script(body=b'{"pause": true}', delay_seconds=9) if seconds == 10 else None)

    async def made_anew() -> None:
        await asyncio.sleep(13)
        store.timers.delete(NAMESPACE, [TimerRef(schedule_timer_id("s1"))], now=clock.now())
        put(store, [make_schedule(every_seconds=100)], clock.now())
        await asyncio.sleep(20)

    run(clock, make_poller(store, sender, clock), made_anew)

    assert sent(sender) == [10]
    assert state_of(store, clock).pause is None


def test_what_cannot_be_read_harms_itself_alone(store: Store, clock: VirtualClock) -> None:
    good = make_schedule()
    bad = [
        make_schedule(schedule_id=f"bad{number}", timing_json=text)
        for number, text in enumerate(('{"cron":["61 * * * *"]}', "[]", '{"other":1}', "{"))
    ]
    put(store, [good, *bad], START)
    sender = ScriptedSender()

    run(clock, make_poller(store, sender, clock), 45)

    assert sent(sender) == [10, 20, 30, 40]
    for each in bad:
        assert stored(store, each.timer_id, clock).state is TimerState.FAILED


@pytest.mark.parametrize("delay_seconds", [0.2, 5], ids=["short", "parked"])
@pytest.mark.parametrize("change", ["policy", "pause", "labels"])
def test_an_occurrence_in_flight_is_sent_once_however_often_its_schedule_is_changed(
    store: Store, clock: VirtualClock, change: str, delay_seconds: float
) -> None:
    put(store, [make_schedule(policy=SchedulePolicy(overlap=Overlap.SKIP, catch_up_ms=600_000))], START)
    sender = answering(lambda seconds, attempt: Script(delay_seconds=delay_seconds))
    schedules = Schedules(store, lambda _: None, lambda _: None)

    async def change_all_the_time() -> None:
        for number in range(29 * 45):
            await asyncio.sleep(1 / 29)
            now = clock.now()
            if change == "pause":
                (schedules.resume if number % 2 else schedules.pause)(
                    NAMESPACE, "s1", now=now, **({} if number % 2 else {"reason": None})
                )
            else:
                policy = {"max_firings": 100 + number} if change == "policy" else {}
                content = {} if change == "policy" else {"tags": (str(number),)}
                schedules.update(NAMESPACE, "s1", ScheduleChange({}, policy, content), now=now)

    run(clock, make_poller(store, sender, clock), change_all_the_time)

    assert sent(sender) == [10, 20, 30, 40]
    assert lines(store, clock)[:3] == [(each, State.FIRED) for each in (10, 20, 30)]
