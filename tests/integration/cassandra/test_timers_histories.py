"""Random histories of a few timers on Cassandra that loses requests and answers: a change is made whole or
not at all, what is due is exactly what the timers say, and no firing ends twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from duetime.domain.errors import StoreUnavailable
from duetime.domain.namespaces import Namespace
from duetime.domain.outcomes import RecordStatus
from duetime.domain.timers import Rearm, Timer, TimerChange, TimerState
from duetime.stores.core.store import Store
from duetime.stores.port.pages import Page
from duetime.stores.port.timers import PutMode, TimerRef
from duetime.testing.contract.builders import failed, fired, leased, make_timer, parked, retried, seconds
from duetime.testing.contract.steps import claim, read_all
from tests.support.cassandra import new_network, store_over
from tests.support.cassandra_faults import Fault, Network, Request, no_faults
from tests.support.cassandra_rows import assert_whole
from tests.support.clock import NOW

NAMES = ("a", "b", "c")
FAULTS = (Fault.LOST_BEFORE, Fault.LOST_AFTER, Fault.TIMED_OUT, Fault.UNFINISHED, Fault.NO_HOST, Fault.UNAVAILABLE)
FAR = NOW + seconds(86_400)

instants = st.integers(-3, 5).map(lambda number: NOW + seconds(number))
names = st.sampled_from(NAMES)
steps = st.one_of(
    st.tuples(st.sampled_from(["create", "replace", "move"]), names, instants),
    st.tuples(st.sampled_from(["touch", "delete", "redrive", "fire"]), names, st.none()),
    st.tuples(st.sampled_from(["fired", "retried", "failed", "parked"]), names, instants),
)
troubles = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from(FAULTS)), max_size=2, unique_by=lambda trouble: trouble[0]
)
histories = st.lists(st.tuples(steps, troubles), min_size=1, max_size=12)


@dataclass
class Trouble:
    """Some of the next requests go wrong."""

    faults: dict[int, Fault]
    count: int = 0

    def __call__(self, request: Request) -> Fault | None:
        if request.kind == "prepare":
            return None
        fault = self.faults.get(self.count)
        self.count += 1
        return Fault.LOST_AFTER if fault is Fault.UNFINISHED and not request.is_cas else fault


@dataclass
class History:
    network: Network
    store: Store
    single: Namespace = field(init=False)
    ended: Counter[tuple[str, int]] = field(default_factory=Counter)
    number: int = 0

    def __post_init__(self) -> None:
        self.single = self.store.catalogue.create_namespace("single", num_shards=1, dedicated=False, now=NOW)[0]
        self.lease = claim(self.store)

    def step(self, kind: str, name: str, at: datetime | None, faults: dict[int, Fault]) -> None:
        self.number += 1
        before = self.store.timers.get(self.single, name, now=NOW)
        operation = self._operation(kind, name, at or NOW, before)
        self.network.faults = Trouble(faults)
        is_answered = True
        try:
            result = operation()
        except StoreUnavailable:
            is_answered = False
            result = None
        self.network.faults = no_faults
        assert_whole(self.network)
        if result is RecordStatus.APPLIED and kind in ("fired", "failed") and before is not None:
            self.ended[name, before.revision] += 1
        after = self.store.timers.get(self.single, name, now=NOW)
        if not faults:
            assert is_answered
        if after != before and after is not None and before is not None:
            assert after.revision == before.revision + 1

    def _operation(self, kind: str, name: str, at: datetime, before: Timer | None) -> Callable[[], object]:
        store, single = self.store, self.single
        firing_id = f"{name}-{self.number}"
        new = make_timer(single, name, execute_at=at, firing_id=firing_id, correlation_id=f"c{self.number % 2}")
        outcomes = {"fired": fired, "failed": failed}
        if kind in ("create", "replace"):
            mode = PutMode.CREATE if kind == "create" else PutMode.REPLACE
            return lambda: store.timers.put([new], mode=mode, now=NOW)
        if kind in ("move", "touch"):
            change = TimerChange(execute_at=at) if kind == "move" else TimerChange(tags=(firing_id,))
            return lambda: store.timers.update(single, name, change, firing_id=firing_id, now=NOW)
        if kind == "delete":
            return lambda: store.timers.delete(single, [TimerRef(name)], now=NOW)
        if kind in ("redrive", "fire"):
            rearm = Rearm.REDRIVE if kind == "redrive" else Rearm.FIRE
            return lambda: store.timers.rearm(single, [TimerRef(name)], rearm=rearm, now=NOW)
        if before is None or before.next_attempt_at is None:
            return lambda: None
        if kind in outcomes:
            outcome = outcomes[kind](before)
        else:
            outcome = retried(before, next_attempt_at=at) if kind == "retried" else parked(before, until=at)
        return lambda: store.timers.record(leased([outcome], self.lease), now=NOW)[0]

    def check(self) -> None:
        timers = [timer for name in NAMES if (timer := self.store.timers.get(self.single, name, now=NOW)) is not None]
        waiting = {timer.timer_id: timer for timer in timers if timer.next_attempt_at is not None}
        page = self.store.timers.due(0, until=FAR, limit=100)
        assert len(page.timers) == len(waiting)
        assert {timer.timer_id: timer for timer in page.timers} == waiting
        assert all(timer.state in (TimerState.SCHEDULED, TimerState.FIRING) for timer in page.timers)
        for correlation_id in ("c0", "c1"):

            def read(cursor: str | None, wanted: str = correlation_id) -> Page[Timer]:
                return self.store.timers.find_by_correlation(self.single, wanted, cursor=cursor, limit=2, now=NOW)

            found = read_all(read)
            wanted = [timer for timer in timers if timer.content.correlation_id == correlation_id]
            assert sorted(found, key=lambda timer: timer.timer_id) == wanted
        assert all(count == 1 for count in self.ended.values())


@given(histories)
@settings(max_examples=80, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
def test_whatever_is_lost_each_timer_is_due_once_or_not_at_all(
    history: list[tuple[tuple[str, str, datetime | None], list[tuple[int, Fault]]]],
) -> None:
    network = new_network()
    with store_over(network) as store:
        world = History(network, store)
        for (kind, name, at), faults in history:
            world.step(kind, name, at, dict(faults))
            world.check()
