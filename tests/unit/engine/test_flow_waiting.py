"""What waits for its turn: how much, for how long, and what it costs."""

from __future__ import annotations

from tests.support.flow import FlowSubject, key
from tests.support.tracing import traced


def test_a_queue_that_was_slow_once_and_is_quick_again_has_the_whole_buffer() -> None:
    subject = FlowSubject(initial_window=4, max_buffered=50)
    subject.add(number=4)
    queues = subject.take()
    subject.slow_down(key())
    for queue in queues:
        subject.end(queue)
    assert subject.add(number=100) == 50


def test_of_a_rate_limited_namespace_no_more_waits_than_will_have_its_turn_in_time() -> None:
    subject = FlowSubject(max_wait_seconds=2.0)
    subject.flow.configure("a", max_in_flight=None, rate_per_second=3.0, monotonic=0.0)
    assert subject.add(number=100) == 3


def test_what_has_waited_too_long_is_handed_back_to_be_read_again() -> None:
    subject = FlowSubject(max_wait_seconds=2.0, initial_window=2)
    subject.add(number=2)
    subject.take()
    subject.add(number=2)
    subject.now = 1.0
    subject.add(number=1)
    subject.now = 2.5
    subject.end(key())
    subject.end(key())
    assert subject.take() == [key()]
    assert subject.given_up == ["a3", "a4"]
    assert len(subject.flow) == 0


def test_a_full_buffer_still_has_a_share_for_every_namespace() -> None:
    subject = FlowSubject(max_buffered=12)
    assert subject.add("a", number=100) == 12
    assert subject.add("b", number=100) == 6
    assert subject.add("c", number=100) == 4
    assert not subject.flow.accepts(key("a"), subject.now)


def test_a_queue_wants_more_when_half_of_it_is_gone() -> None:
    subject = FlowSubject(max_buffered=10, initial_window=100)
    subject.add(number=10)
    subject.take(4)
    assert not subject.flow.wants(key(), subject.now)
    subject.take(1)
    assert subject.flow.wants(key(), subject.now)
    assert subject.flow.wants(key("another"), subject.now)


def test_a_queue_that_hangs_keeps_few_waiting() -> None:
    subject = FlowSubject(initial_window=4)
    subject.add(number=4)
    subject.take()
    subject.slow_down(key())
    assert subject.add(number=100) == 4


def test_a_timer_that_may_not_start_takes_no_place_and_no_token() -> None:
    subject = FlowSubject(max_in_flight_per_host=1)
    subject.flow.configure("a", max_in_flight=None, rate_per_second=0.01, monotonic=0.0)
    subject.add()
    assert not subject.flow.take(0.0, 100, lambda attempt: False)
    assert len(subject.flow) == 0
    subject.add()
    assert subject.take() == [key()]


def test_a_look_costs_no_more_when_many_wait_that_cannot_start() -> None:
    costs = []
    for number in (10, 1000):
        subject = FlowSubject(max_buffered=10_000, max_in_flight_per_host=number)
        for each in range(number):
            for namespace, host, limit, rate in (
                (f"hangs{each}", f"hangs{each}", 1, None),
                (f"rate{each}", f"rate{each}", None, 1.0),
                (f"shares{each}", "shared", None, None),
            ):
                subject.flow.configure(namespace, max_in_flight=limit, rate_per_second=rate, monotonic=0.0)
                subject.add(namespace, host)
        subject.take()
        for each in range(number):
            subject.add(f"hangs{each}", f"hangs{each}")
            subject.add(f"rate{each}", f"rate{each}")
            subject.add(f"shares{each}", "shared")
        subject.take()
        subject.add("fine", "fine")
        with traced() as functions:
            subject.take()
        costs.append(len(functions))
        assert len(subject.flow) == 3 * number
    assert costs[0] == costs[1]


def test_removing_leaves_the_others_in_order() -> None:
    subject = FlowSubject()
    subject.add(number=4)
    removed = subject.flow.remove(lambda attempt: attempt.timer.timer_id in ("a1", "a3"))
    assert [attempt.timer.timer_id for attempt in removed] == ["a1", "a3"]
    assert len(subject.take()) == len(removed)
