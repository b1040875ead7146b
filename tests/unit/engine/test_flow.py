"""Who is started next, and how many: namespaces and hosts take turns within their bounds."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from duetime.engine.flow.queues import HostSignal
from tests.support.flow import FlowSubject, key


def test_namespaces_take_turns_and_keep_their_order() -> None:
    subject = FlowSubject()
    subject.add("noisy", number=3)
    subject.add("quiet")
    assert [queue[0] for queue in subject.take()] == ["noisy", "quiet", "noisy", "noisy"]


def test_the_hosts_of_a_namespace_take_turns() -> None:
    subject = FlowSubject()
    subject.add(host="one", number=3)
    subject.add(host="two")
    assert [queue[1] for queue in subject.take()] == ["http://one", "http://two", "http://one", "http://one"]


def test_a_host_that_hangs_gets_no_more_than_its_window_and_others_go_on() -> None:
    subject = FlowSubject(initial_window=4)
    subject.add(host="hangs", number=100)
    subject.add(host="fine", number=2)
    assert Counter(subject.take()) == {key(host="hangs"): 4, key(host="fine"): 2}
    subject.end(key(host="fine"))
    assert subject.take() == []


def test_answers_open_the_window_up_to_three_quarters_of_the_bound_of_a_host() -> None:
    subject = FlowSubject(initial_window=4, max_in_flight_per_host=10)
    subject.cycle(key(), 50)
    subject.add(number=100)
    assert len(subject.take()) == 7  # three quarters: another namespace has a way in
    subject.add("b", number=100)
    assert Counter(subject.take()) == {key("b"): 3}


def test_the_bound_of_a_host_is_for_all_namespaces_together_and_freed_places_go_round() -> None:
    subject = FlowSubject(initial_window=16, max_in_flight_per_host=6)
    for namespace in "abc":
        subject.add(namespace, number=10)
    in_flight = subject.take()
    assert Counter(queue[0] for queue in in_flight) == {"a": 2, "b": 2, "c": 2}
    later = []
    for _ in range(6):
        subject.end(in_flight.pop(0))
        (queue,) = subject.take()
        in_flight.append(queue)
        later.append(queue[0])
    assert Counter(later) == {"a": 2, "b": 2, "c": 2}


def test_the_bound_of_a_namespace_is_for_all_its_hosts_together() -> None:
    subject = FlowSubject(initial_window=16)
    subject.flow.configure("a", max_in_flight=3, rate_per_second=None, monotonic=0.0)
    for host in ("one", "two", "three"):
        subject.add(host=host, number=5)
    taken = subject.take()
    assert len(taken) == 3
    subject.end(taken[0])
    assert len(subject.take()) == 1
    subject.flow.configure("a", max_in_flight=5, rate_per_second=None, monotonic=0.0)
    assert len(subject.take()) == 2


def test_a_namespace_with_a_limit_of_its_own_begins_with_it() -> None:
    subject = FlowSubject(initial_window=2, max_in_flight_per_host=40)
    subject.flow.configure("a", max_in_flight=20, rate_per_second=None, monotonic=0.0)
    subject.add(number=100)
    subject.add("b", number=100)
    assert Counter(subject.take()) == {key("a"): 20, key("b"): 2}


def test_a_limit_that_is_set_while_a_host_is_in_use_widens_its_window() -> None:
    subject = FlowSubject(initial_window=2)
    subject.add(number=100)
    subject.add(host="fails", number=100)
    assert Counter(subject.take()) == {key(): 2, key(host="fails"): 2}
    subject.end(key(host="fails"), HostSignal.FAILED)
    subject.flow.configure("a", max_in_flight=50, rate_per_second=None, monotonic=0.0)
    assert Counter(subject.take()) == {key(): 50 - 2 - 1}  # the one that failed has to earn its size


def test_room_at_a_host_that_one_namespace_cannot_use_is_used_by_the_next() -> None:
    subject = FlowSubject(max_in_flight_per_host=1)
    subject.flow.configure("a", max_in_flight=1, rate_per_second=None, monotonic=0.0)
    subject.add("c", "shared")
    assert subject.take() == [key("c", "shared")]
    for namespace in "ab":
        subject.add(namespace, "shared")
    assert subject.take() == []
    subject.add("a", "other")
    subject.end(key("c", "shared"))
    assert Counter(subject.take()) == {key("a", "other"): 1, key("b", "shared"): 1}


def test_a_queue_whose_namespace_is_full_does_not_keep_its_host_s_room() -> None:
    subject = FlowSubject(max_in_flight_per_host=1)
    subject.flow.configure("narrow", max_in_flight=1, rate_per_second=None, monotonic=0.0)
    subject.add("noisy", "shared")
    assert subject.take() == [key("noisy", "shared")]
    subject.add("narrow", "shared")
    subject.add("narrow", "other")
    assert subject.take() == [key("narrow", "other")]  # all that it may have, while its other host is full
    subject.add("quiet", "shared")
    assert subject.take() == []
    subject.end(key("noisy", "shared"))
    assert subject.take() == [key("quiet", "shared")]


def test_what_was_passed_over_comes_before_what_has_had_a_turn_since() -> None:
    subject = FlowSubject(max_in_flight_per_host=1)
    subject.add("noisy")
    assert subject.take() == [key("noisy")]
    subject.add("quiet")
    subject.add("noisy")
    assert subject.take() == []
    subject.end(key("noisy"))
    assert subject.take() == [key("quiet")]


@given(st.lists(st.sampled_from("abcd"), max_size=60))
def test_no_namespace_waits_longer_than_one_round(namespaces: list[str]) -> None:
    subject = FlowSubject(initial_window=1000)
    for namespace in namespaces:
        subject.add(namespace, host=namespace)
    waiting = Counter(namespaces)
    while len(subject.flow):
        round_size = sum(1 for count in waiting.values() if count)
        turn = [queue[0] for queue in subject.take(round_size)]
        assert len(set(turn)) == round_size
        waiting.subtract(turn)
    assert not +waiting
