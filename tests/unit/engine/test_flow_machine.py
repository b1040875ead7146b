"""Flow control whatever happens, in whatever order."""

from __future__ import annotations

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from duetime.engine.flow.queues import HostSignal
from duetime.engine.keys import QueueKey
from tests.support.flow import FlowSubject


@settings(max_examples=60, stateful_step_count=60, deadline=None)
class FlowMachine(RuleBasedStateMachine):
    """Nothing is lost or started twice, no bound is broken, and what may be started is."""

    def __init__(self) -> None:
        super().__init__()
        self.subject = FlowSubject(
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
