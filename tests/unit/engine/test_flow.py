from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from duetime.engine.delivery import Attempt
from duetime.engine.flow.control import FlowControl
from duetime.engine.flow.queues import BreakerState, HostSignal
from duetime.engine.keys import QueueKey, queue_key
from duetime.engine.settings import EngineSettings
from tests.support.engine import make_attempt, make_shard, make_timer
from tests.support.tracing import traced

SHARD = make_shard()


class Subject:
    """Flow control with a clock that is set by hand. Host names stand for whole origins."""

    def __init__(self, **settings: float) -> None:
        self.given_up: list[str] = []
        self.now = 0.0
        self.settings = EngineSettings(**settings)  # type: ignore[arg-type]
        self.flow = FlowControl(self.settings, random=lambda: 0.5, give_up=self._give_up)
        self.number = 0
        self.in_flight: dict[QueueKey, list[Attempt]] = {}

    def _give_up(self, attempt: Attempt) -> None:
        self.given_up.append(attempt.timer.timer_id)

    def add(self, namespace: str = "a", host: str = "h", *, number: int = 1) -> int:
        """How many of ``number`` timers were accepted."""
        accepted = 0
        for _ in range(number):
            self.number += 1
            timer = make_timer(f"{namespace}{self.number}", namespace=namespace, callback_url=f"http://{host}/x")
            if self.flow.accepts(queue_key(timer), self.now):
                self.flow.add(make_attempt(timer, SHARD, read_at=self.now), self.now)
                accepted += 1
        return accepted

    def take(self, number: int = 10_000) -> list[QueueKey]:
        """The queues of what may be started now, in order."""
        taken = self.flow.take(self.now, number, lambda attempt: True)
        for attempt in taken:
            attempt.started = self.now
            self.in_flight.setdefault(attempt.queue, []).append(attempt)
        return [attempt.queue for attempt in taken]

    def end(self, key: QueueKey, signal: HostSignal = HostSignal.ANSWERED) -> BreakerState | None:
        """End the attempt of a queue that was started last."""
        return self.flow.end(self.in_flight[key].pop(), signal, self.now)

    def slow_down(self, key: QueueKey) -> None:
        """All attempts of a queue have been in flight for long."""
        for attempt in self.in_flight[key]:
            attempt.is_slow = True
            self.flow.slow_down(attempt)

    def cycle(self, key: QueueKey, number: int) -> None:
        """Have ``number`` more attempts answered, so that the windows grow."""
        for _ in range(number):
            self.add(key[0], key[1].removeprefix("http://"))
            assert self.take(1) == [key]
            self.end(key)


def key(namespace: str = "a", host: str = "h") -> QueueKey:
    return namespace, f"http://{host}"


def test_namespaces_take_turns_and_keep_their_order() -> None:
    subject = Subject()
    subject.add("noisy", number=3)
    subject.add("quiet")
    assert [queue[0] for queue in subject.take()] == ["noisy", "quiet", "noisy", "noisy"]


def test_the_hosts_of_a_namespace_take_turns() -> None:
    subject = Subject()
    subject.add(host="one", number=3)
    subject.add(host="two")
    assert [queue[1] for queue in subject.take()] == ["http://one", "http://two", "http://one", "http://one"]


def test_a_host_that_hangs_gets_no_more_than_its_window_and_others_go_on() -> None:
    subject = Subject(initial_window=4)
    subject.add(host="hangs", number=100)
    subject.add(host="fine", number=2)
    assert Counter(subject.take()) == {key(host="hangs"): 4, key(host="fine"): 2}
    subject.end(key(host="fine"))
    assert subject.take() == []


def test_answers_open_the_window_up_to_three_quarters_of_the_bound_of_a_host() -> None:
    subject = Subject(initial_window=4, max_in_flight_per_host=10)
    subject.cycle(key(), 50)
    subject.add(number=100)
    assert len(subject.take()) == 7  # three quarters: another namespace has a way in
    subject.add("b", number=100)
    assert Counter(subject.take()) == {key("b"): 3}


def test_the_bound_of_a_host_is_for_all_namespaces_together_and_freed_places_go_round() -> None:
    subject = Subject(initial_window=16, max_in_flight_per_host=6)
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
    subject = Subject(initial_window=16)
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
    subject = Subject(initial_window=2, max_in_flight_per_host=40)
    subject.flow.configure("a", max_in_flight=20, rate_per_second=None, monotonic=0.0)
    subject.add(number=100)
    subject.add("b", number=100)
    assert Counter(subject.take()) == {key("a"): 20, key("b"): 2}


def test_a_limit_that_is_set_while_a_host_is_in_use_widens_its_window() -> None:
    subject = Subject(initial_window=2)
    subject.add(number=100)
    subject.add(host="fails", number=100)
    assert Counter(subject.take()) == {key(): 2, key(host="fails"): 2}
    subject.end(key(host="fails"), HostSignal.FAILED)
    subject.flow.configure("a", max_in_flight=50, rate_per_second=None, monotonic=0.0)
    assert Counter(subject.take()) == {key(): 50 - 2 - 1}  # the one that failed has to earn its size


def test_a_queue_that_was_slow_once_and_is_quick_again_has_the_whole_buffer() -> None:
    subject = Subject(initial_window=4, max_buffered=50)
    subject.add(number=4)
    queues = subject.take()
    subject.slow_down(key())
    for queue in queues:
        subject.end(queue)
    assert subject.add(number=100) == 50


def test_a_rate_limit_spreads_starts_and_says_when_the_next_is_possible() -> None:
    subject = Subject(initial_window=100)
    subject.flow.configure("a", max_in_flight=None, rate_per_second=2.0, monotonic=0.0)
    subject.add(number=2)
    subject.add("b", number=2)
    assert Counter(queue[0] for queue in subject.take()) == {"a": 2, "b": 2}
    subject.add(number=2)
    assert subject.take() == []
    assert subject.flow.next_token_at == 0.5
    subject.now = 0.5
    assert subject.take(1) == [key()]
    assert subject.flow.next_token_at is None
    assert subject.take() == []
    assert subject.flow.next_token_at == 1.0


def test_a_token_that_comes_sooner_than_the_clock_can_tell_is_there_at_its_next_tick() -> None:
    subject = Subject()
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


def test_of_a_rate_limited_namespace_no_more_waits_than_will_have_its_turn_in_time() -> None:
    subject = Subject(max_wait_seconds=2.0)
    subject.flow.configure("a", max_in_flight=None, rate_per_second=3.0, monotonic=0.0)
    assert subject.add(number=100) == 3


def test_what_has_waited_too_long_is_handed_back_to_be_read_again() -> None:
    subject = Subject(max_wait_seconds=2.0, initial_window=2)
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
    subject = Subject(max_buffered=12)
    assert subject.add("a", number=100) == 12
    assert subject.add("b", number=100) == 6
    assert subject.add("c", number=100) == 4
    assert not subject.flow.accepts(key("a"), subject.now)


def test_a_queue_wants_more_when_half_of_it_is_gone() -> None:
    subject = Subject(max_buffered=10, initial_window=100)
    subject.add(number=10)
    subject.take(4)
    assert not subject.flow.wants(key(), subject.now)
    subject.take(1)
    assert subject.flow.wants(key(), subject.now)
    assert subject.flow.wants(key("another"), subject.now)


def test_a_queue_that_hangs_keeps_few_waiting() -> None:
    subject = Subject(initial_window=4)
    subject.add(number=4)
    subject.take()
    subject.slow_down(key())
    assert subject.add(number=100) == 4


def test_a_host_that_fails_is_left_alone_and_then_probed_by_one() -> None:
    subject = Subject(breaker_failures=3, breaker_pause_seconds=5.0)
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


def test_room_at_a_host_that_one_namespace_cannot_use_is_used_by_the_next() -> None:
    subject = Subject(max_in_flight_per_host=1)
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
    subject = Subject(max_in_flight_per_host=1)
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
    subject = Subject(max_in_flight_per_host=1)
    subject.add("noisy")
    assert subject.take() == [key("noisy")]
    subject.add("quiet")
    subject.add("noisy")
    assert subject.take() == []
    subject.end(key("noisy"))
    assert subject.take() == [key("quiet")]


def test_a_timer_that_may_not_start_takes_no_place_and_no_token() -> None:
    subject = Subject(max_in_flight_per_host=1)
    subject.flow.configure("a", max_in_flight=None, rate_per_second=0.01, monotonic=0.0)
    subject.add()
    assert not subject.flow.take(0.0, 100, lambda attempt: False)
    assert len(subject.flow) == 0
    subject.add()
    assert subject.take() == [key()]


def test_a_new_rate_is_in_force_for_who_waits_for_a_token_already() -> None:
    subject = Subject()
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


def test_a_look_costs_no_more_when_many_wait_that_cannot_start() -> None:
    costs = []
    for number in (10, 1000):
        subject = Subject(max_buffered=10_000, max_in_flight_per_host=number)
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


def test_one_namespace_s_breaker_is_not_another_s() -> None:
    subject = Subject(breaker_failures=1)
    subject.add("a")
    subject.add("b", number=3)
    subject.take()
    subject.end(key("a"), HostSignal.FAILED)
    assert subject.add("a") == 0
    assert subject.add("b") == 1


def test_removing_leaves_the_others_in_order() -> None:
    subject = Subject()
    subject.add(number=4)
    removed = subject.flow.remove(lambda attempt: attempt.timer.timer_id in ("a1", "a3"))
    assert [attempt.timer.timer_id for attempt in removed] == ["a1", "a3"]
    assert len(subject.take()) == len(removed)


@hypothesis_settings(max_examples=60, stateful_step_count=60, deadline=None)
class FlowMachine(RuleBasedStateMachine):
    """Nothing is lost or started twice, no bound is broken, and what may be started is."""

    def __init__(self) -> None:
        super().__init__()
        self.subject = Subject(
            initial_window=2,
            max_in_flight_per_host=3,
            max_in_flight_per_namespace=4,
            max_buffered=20,
            max_wait_seconds=3.0,
            breaker_failures=2,
            breaker_pause_seconds=2.0,
        )
        self.accepted = 0
        self.in_flight: list[QueueKey] = []
        self.started = 0

    @rule(namespace=st.sampled_from("abc"), host=st.sampled_from(["one", "two"]), number=st.integers(1, 8))
    def add(self, namespace: str, host: str, number: int) -> None:
        self.accepted += self.subject.add(namespace, host, number=number)

    @rule(namespace=st.sampled_from("ab"), rate=st.sampled_from([None, 0.5, 3.0]))
    def configure(self, namespace: str, rate: float | None) -> None:
        self.subject.flow.configure(namespace, max_in_flight=None, rate_per_second=rate, monotonic=self.subject.now)

    @rule()
    def take(self) -> None:
        taken = self.subject.take()
        self.in_flight += taken
        self.started += len(taken)

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data(), signal=st.sampled_from(list(HostSignal)))
    def end(self, data: st.DataObject, signal: HostSignal) -> None:
        queue = self.in_flight.pop(data.draw(st.integers(0, len(self.in_flight) - 1)))
        self.subject.end(queue, signal)

    @rule(seconds=st.sampled_from([0.1, 1.0, 2.5]))
    def wait(self, seconds: float) -> None:
        self.subject.now += seconds

    @invariant()
    def nothing_is_lost(self) -> None:
        gone = self.started + len(self.subject.given_up)
        assert self.accepted == gone + len(self.subject.flow)

    @invariant()
    def bounds_hold(self) -> None:
        assert all(count <= 3 for count in Counter(queue[1] for queue in self.in_flight).values())
        assert all(count <= 4 for count in Counter(queue[0] for queue in self.in_flight).values())

    def teardown(self) -> None:
        """When everything is answered and all pauses are over, everything that waits is started or handed back."""
        for _ in range(200):
            self.subject.now += 2.5
            self.in_flight += self.subject.take()
            while self.in_flight:
                self.subject.end(self.in_flight.pop())
            if not len(self.subject.flow):
                return
        raise AssertionError(f"{len(self.subject.flow)} timers wait for ever")


TestFlow = FlowMachine.TestCase


@given(st.lists(st.sampled_from("abcd"), max_size=60))
def test_no_namespace_waits_longer_than_one_round(namespaces: list[str]) -> None:
    subject = Subject(initial_window=1000)
    for namespace in namespaces:
        subject.add(namespace, host=namespace)
    waiting = Counter(namespaces)
    while len(subject.flow):
        round_size = sum(1 for count in waiting.values() if count)
        turn = [queue[0] for queue in subject.take(round_size)]
        assert len(set(turn)) == round_size
        waiting.subtract(turn)
    assert not +waiting
