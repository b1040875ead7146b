from __future__ import annotations

from dataclasses import replace

from duetime.domain.timers import Timer, TimerState
from duetime.engine.delivery import Attempt, AttemptState
from duetime.engine.in_flight import HeldPayloads, InFlight
from duetime.engine.keys import firing_key, queue_key
from tests.support.engine import PAGE, NoDelivery, make_shard, make_timer


class Subject:
    """What one shard has in flight."""

    def __init__(self) -> None:
        self.payloads = HeldPayloads()
        self.in_flight = InFlight(self.payloads, slow_after_seconds=1.0)
        self.shard = make_shard()

    def take(self, timer: Timer) -> Attempt:
        return self.in_flight.take(NoDelivery(), self.shard, timer, queue_key(timer), PAGE, 0.0)

    def is_new(self, timer: Timer) -> bool:
        return not self.in_flight.is_taken(self.shard, *firing_key(timer))


def test_a_timer_in_flight_is_not_taken_up_again() -> None:
    subject, timer = Subject(), make_timer("t")
    assert subject.is_new(timer)
    subject.take(timer)
    assert not subject.is_new(timer)
    assert not subject.in_flight.is_taken(make_shard(), *firing_key(timer))  # its shard came back under another lease


def test_a_timer_recorded_while_a_read_was_in_flight_is_not_taken_up_from_that_page() -> None:
    subject, timer = Subject(), make_timer("t")
    attempt = subject.take(timer)
    subject.shard.reading.is_polling = True
    subject.in_flight.settle(attempt)
    assert not subject.is_new(timer)
    assert not subject.shard.holds
    subject.in_flight.end_poll(subject.shard)
    assert subject.is_new(timer)


def test_a_timer_that_is_given_up_is_left_on_its_page_and_may_be_taken_from_the_one_that_is_being_read() -> None:
    subject, timer = Subject(), make_timer("t", payload_json=f'"{"x" * 10_000}"')
    attempt = subject.take(timer)
    assert subject.payloads.bytes
    subject.shard.reading.is_polling = True
    subject.in_flight.give_up(attempt)
    assert subject.is_new(timer)
    assert subject.shard.reading.left == {queue_key(timer): PAGE}
    assert (subject.payloads.bytes, subject.shard.holds) == (0, 0)


def test_a_parked_attempt_is_not_taken_up_beside_itself_and_does_not_keep_its_shard() -> None:
    subject, timer = Subject(), make_timer("t")
    parked = replace(timer, state=TimerState.FIRING, revision=2)
    attempt = subject.take(timer)
    subject.in_flight.send(attempt)
    assert subject.shard.holds == 1
    subject.in_flight.park(attempt, parked)
    assert attempt.state is AttemptState.PARKED
    assert not subject.is_new(parked)
    assert (subject.shard.holds, subject.in_flight.parked) == (0, 1)
    subject.in_flight.settle(attempt)
    assert subject.is_new(parked)


def test_an_open_execution_is_known_whatever_its_timer_has_become() -> None:
    subject, timer = Subject(), make_timer("t")
    attempt = subject.take(timer)
    subject.in_flight.open(attempt, body_bytes=10_000)
    overdue = replace(timer, state=TimerState.FIRING, revision=2, attempts=1)
    assert subject.in_flight.is_open(overdue)
    assert (subject.shard.holds, subject.payloads.bytes) == (0, 10_000)
    subject.in_flight.close(attempt)
    assert not subject.in_flight.is_open(overdue)
    assert not subject.payloads.bytes


def test_an_attempt_is_slow_once_and_until_it_ends() -> None:
    subject = Subject()
    attempts = [subject.take(make_timer(name)) for name in ("a", "b")]
    for attempt in attempts:
        attempt.started = 0.0
        subject.in_flight.send(attempt)
    assert subject.in_flight.pop(attempts[0].number) is attempts[0]
    assert list(subject.in_flight.newly_slow(0.9)) == []
    assert list(subject.in_flight.newly_slow(1.0)) == [attempts[1]]
    assert list(subject.in_flight.newly_slow(2.0)) == []
    assert subject.in_flight.slow == 1
    subject.in_flight.pop(attempts[1].number)
    assert subject.in_flight.slow == 0
