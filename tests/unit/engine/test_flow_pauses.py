"""What is not started for now: rate limits and circuit breakers."""

from __future__ import annotations

from collections import Counter

from duetime.engine.flow.queues import BreakerState, HostSignal
from tests.support.flow import FlowSubject, key


def test_a_rate_limit_spreads_starts_and_says_when_the_next_is_possible() -> None:
    subject = FlowSubject(initial_window=100)
    subject.flow.configure("a", max_in_flight=None, rate_per_second=2.0, monotonic=0.0)
    subject.add(number=2)
    subject.add("b", number=2)
    assert Counter(queue[0] for queue in subject.take()) == {"a": 2, "b": 2}
    subject.add(number=2)
    assert (subject.take(), subject.flow.next_token_at) == ([], 0.5)
    subject.now = 0.5
    assert (subject.take(1), subject.flow.next_token_at) == ([key()], None)
    assert (subject.take(), subject.flow.next_token_at) == ([], 1.0)


def test_a_token_that_comes_sooner_than_the_clock_can_tell_is_there_at_its_next_tick() -> None:
    subject = FlowSubject()
    subject.now = 1e15  # where the clock's resolution is an eighth of a second
    subject.flow.configure("a", max_in_flight=None, rate_per_second=1.05, monotonic=subject.now)
    subject.add()
    assert subject.take() == [key()]
    subject.add()
    subject.now += 0.875
    assert subject.take() == []
    assert subject.flow.next_token_at == subject.now
    subject.now += 0.125
    assert subject.take() == [key()]


def test_a_host_that_fails_is_left_alone_and_then_probed_by_one() -> None:
    subject = FlowSubject(breaker_failures=3, breaker_pause_seconds=5.0)
    subject.add(number=20)
    taken = subject.take(5)
    assert [subject.end(queue, HostSignal.FAILED) for queue in taken[:3]] == [None, None, BreakerState.OPEN]
    assert len(subject.given_up) == 15
    assert subject.add(number=3) == 0
    assert not subject.flow.wants(key(), subject.now)
    assert subject.flow.open_breakers(subject.now) == 1

    subject.now = 5.0
    for queue in taken[3:]:
        subject.end(queue, HostSignal.NEUTRAL)
    assert subject.flow.wants(key(), subject.now)
    assert subject.add(number=3) == 1
    assert subject.take() == [key()]
    assert subject.add(number=3) == 0
    assert subject.end(key(), HostSignal.FAILED) is BreakerState.OPEN
    assert not subject.flow.wants(key(), 14.9)

    subject.now = 15.0
    assert subject.add(number=3) == 1
    assert subject.take() == [key()]
    assert subject.end(key()) is BreakerState.CLOSED
    assert subject.add(number=3) == 3


def test_a_new_rate_is_in_force_for_who_waits_for_a_token_already() -> None:
    subject = FlowSubject()
    subject.flow.configure("a", max_in_flight=None, rate_per_second=0.01, monotonic=0.0)
    subject.add()
    assert subject.take() == [key()]
    subject.add()
    assert subject.take() == []
    subject.now = 0.1
    subject.flow.configure("a", max_in_flight=None, rate_per_second=100.0, monotonic=0.1)
    assert subject.take() == []
    assert subject.flow.next_token_at is not None
    assert subject.flow.next_token_at < 0.12


def test_one_namespace_s_breaker_is_not_another_s() -> None:
    subject = FlowSubject(breaker_failures=1)
    subject.add("a")
    subject.add("b", number=3)
    subject.take()
    subject.end(key("a"), HostSignal.FAILED)
    assert subject.add("a") == 0
    assert subject.add("b") == 1
