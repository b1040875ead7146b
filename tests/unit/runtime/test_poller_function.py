from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duetime.domain.errors import InvalidInput, StoreUnavailable
from duetime.domain.shards import Lease, ShardMap, ShardStatus
from duetime.engine.stats import EngineSnapshot
from duetime.engine.waiting import ThreadOffload
from duetime.runtime.poller_function import Background, PollerFunction, read_shard_ids, to_ranges
from duetime.runtime.settings import PollerSettings
from duetime.runtime.waking import WAKE_EVENT, FanOutFailed
from duetime.testing.virtual_time import InlineOffload
from tests.support.clock import FakeClock
from tests.support.metrics import make_snapshot
from tests.support.on_lambda import NoBackground

SCHEDULED = {"detail-type": "Scheduled Event", "source": "aws.events"}
ARN = "arn:aws:lambda:eu-central-1:123456789012:function:poller"


@dataclass
class Context:
    aws_request_id: str = "request-1"
    invoked_function_arn: str = ARN
    remaining_milliseconds: int = 60_000

    def get_remaining_time_in_millis(self) -> int:
        return self.remaining_milliseconds


@dataclass
class FakeStore:
    """Answers ``shard_map`` from a list; the last answer is repeated."""

    answers: list[ShardMap | StoreUnavailable]
    owned: dict[int, ShardStatus] = field(default_factory=dict)
    """By others; all else is free."""

    @property
    def catalogue(self) -> FakeStore:
        return self

    @property
    def leases(self) -> FakeStore:
        return self

    def statuses(self, shard_ids: Sequence[int], *, now: datetime) -> list[ShardStatus]:
        return [self.owned.get(shard_id, ShardStatus(shard_id)) for shard_id in shard_ids]

    def claim(
        self, shard_ids: Sequence[int], owner_id: str, *, lease_seconds: float, metadata: str, now: datetime
    ) -> list[Lease | None]:
        return [None if shard_id in self.owned else Lease(shard_id, 1, owner_id, now) for shard_id in shard_ids]

    def release(self, leases: Sequence[Lease], *, now: datetime) -> None:
        pass

    def shard_map(self) -> ShardMap:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, StoreUnavailable):
            raise answer
        return answer


@dataclass
class FakePoller:
    """Notes what it is asked to poll and polls until ``until`` says that it is enough."""

    until: Callable[[], bool] = lambda: True
    runs: list[tuple[list[int] | None, float | None]] = field(default_factory=list)
    shards: list[int] = field(default_factory=list)
    """As they were set last."""

    async def run(
        self, stop: asyncio.Event, *, shard_ids: Sequence[int] | None = None, deadline: float | None = None
    ) -> None:
        self.runs.append((None if shard_ids is None else list(shard_ids), deadline))
        async with asyncio.timeout(5):
            while not self.until():
                await asyncio.sleep(0.001)

    def set_shards(self, shard_ids: Sequence[int]) -> None:
        self.shards = list(shard_ids)

    def stats(self) -> dict[str, int]:
        return {"fired": 3, "shards_owned": len(self.runs[-1][0] or ()) if self.runs else 0}

    def snapshot(self) -> EngineSnapshot:
        return make_snapshot(fired=3)


@dataclass
class Reports:
    """What was reported, and for which request."""

    fired: list[int] = field(default_factory=list)
    request_ids: set[object] = field(default_factory=set)

    def report(self, snapshot: EngineSnapshot, **properties: object) -> None:
        self.fired.append(snapshot.counters["fired"])
        self.request_ids.add(properties["request_id"])


class Invocations:
    """The asynchronous invocations that were asked for; the first ``failures`` of them fail."""

    def __init__(self, failures: int = 0) -> None:
        self.events: list[dict[str, Any]] = []
        self.arns: set[str] = set()
        self.failures = failures
        self._lock = threading.Lock()

    def __call__(self, arn: str, event: dict[str, Any]) -> None:
        with self._lock:
            self.arns.add(arn)
            self.events.append(event)
            if len(self.events) <= self.failures:
                raise FanOutFailed("throttled")


def make_function(
    poller: FakePoller,
    answers: list[ShardMap | StoreUnavailable],
    invocations: Invocations,
    *,
    reports: Reports | None = None,
    owned: dict[int, ShardStatus] | None = None,
    background: Background | None = None,
    **settings: Any,
) -> PollerFunction:
    clock = FakeClock()
    settings = {"sleep": "never"} | settings
    return PollerFunction(
        poller,
        FakeStore(answers, owned or {}),  # type: ignore[arg-type]  # the part of a store that is used
        clock=clock,
        settings=PollerSettings(store="dynamodb://timers", **settings),
        invoke=invocations,
        reporter=reports or Reports(),
        owner_id="me",
        offload=InlineOffload(),
        background=background or NoBackground(),
        background_offload=ThreadOffload(1, "background"),
        tend_interval_seconds=0.001,
        metrics_interval_seconds=0.001,
    )


def test_named_shards_are_polled_until_the_margin_before_the_deadline() -> None:
    poller, invocations = FakePoller(), Invocations()
    function = make_function(poller, [ShardMap(99)], invocations, deadline_margin_seconds=4)
    answer = function({"shardRanges": [[0, 2], [4096, 4096]]}, Context())
    assert poller.runs == [([0, 1, 2, 4096], 56.0)]
    assert answer == {"shardRanges": [[0, 2], [4096, 4096]], "stats": {"fired": 3, "shards_owned": 4}}
    assert invocations.events == []


@dataclass
class NotedBackground:
    """Works until it is told to stop."""

    runs: list[bool] = field(default_factory=list)
    is_over: bool = False

    def run(self, stop: threading.Event, *, may_wait: bool) -> None:
        self.runs.append(may_wait)
        assert stop.wait(30)
        self.is_over = True


def test_what_is_done_beside_polling_ends_with_it() -> None:
    background = NotedBackground()
    poller = FakePoller(until=lambda: background.runs == [True])
    make_function(poller, [ShardMap(2)], Invocations(), background=background)(SCHEDULED, Context())
    assert background.is_over


def test_a_watchdog_that_has_nothing_to_poll_does_it_too_but_waits_for_nothing() -> None:
    background = NotedBackground()
    owned = {0: ShardStatus(0, version=1, owner_id="other", is_free=False)}
    function = make_function(
        FakePoller(), [ShardMap(1)], Invocations(), background=background, owned=owned, deadline_margin_seconds=4
    )
    answer = function(SCHEDULED, Context(remaining_milliseconds=4050))
    assert answer["shardRanges"] == []
    assert (background.runs, background.is_over) == ([False], True)


@pytest.mark.parametrize("event", [SCHEDULED, {"shardRanges": [[0, 2]]}])
def test_what_is_counted_is_reported_while_it_polls_and_at_the_end(event: dict[str, Any]) -> None:
    reports = Reports()
    poller = FakePoller(until=lambda: len(reports.fired) >= 2)
    make_function(poller, [ShardMap(2)], Invocations(), reports=reports)(event, Context())
    assert len(reports.fired) >= 3
    assert reports.request_ids == {"request-1"}


def test_what_is_counted_is_reported_even_if_polling_failed() -> None:
    def fail() -> bool:
        raise RuntimeError("broken")

    reports = Reports()
    function = make_function(FakePoller(until=fail), [ShardMap(2)], Invocations(), reports=reports)
    with pytest.raises(RuntimeError, match="broken"):
        function({"shardRanges": [[0, 2]]}, Context())
    assert reports.fired == [3]


def test_the_scheduled_invocation_takes_the_first_part_and_hands_on_the_others() -> None:
    invocations = Invocations()
    poller = FakePoller(until=lambda: len(invocations.events) == 2)
    function = make_function(poller, [ShardMap(10, 4098)], invocations, shards_per_poller=4)
    answer = function(SCHEDULED, Context())
    assert poller.runs == [([0, 1, 2, 3], 55.0)]
    assert invocations.events == [{"shardRanges": [[4, 7]]}, {"shardRanges": [[8, 9], [4096, 4097]]}]
    assert invocations.arns == {ARN}
    assert answer["shardRanges"] == [[0, 3]]


def test_what_it_hands_on_is_what_it_understands() -> None:
    invocations = Invocations()
    poller = FakePoller(until=lambda: len(invocations.events) == 3)
    make_function(poller, [ShardMap(7, 4099)], invocations, shards_per_poller=3)(SCHEDULED, Context())
    handed_on = [read_shard_ids(event) for event in invocations.events]
    assert handed_on == [[3, 4, 5], [6, 4096, 4097], [4098]]


def test_a_part_that_appears_meanwhile_is_handed_on_once() -> None:
    invocations = Invocations()
    maps: list[ShardMap | StoreUnavailable] = [ShardMap(2), ShardMap(2), *[ShardMap(3)] * 5]
    poller = FakePoller(until=lambda: len(maps) == 1)  # all have been read
    make_function(poller, maps, invocations, shards_per_poller=2)(SCHEDULED, Context())
    assert poller.runs[0][0] == [0, 1]
    assert invocations.events == [{"shardRanges": [[2, 2]]}]


def test_a_shard_that_appears_in_a_part_with_room_joins_it() -> None:
    invocations = Invocations()
    maps: list[ShardMap | StoreUnavailable] = [ShardMap(2), ShardMap(2), *[ShardMap(3)] * 5]
    poller = FakePoller(until=lambda: len(maps) == 1)
    answer = make_function(poller, maps, invocations, shards_per_poller=4)(SCHEDULED, Context())
    assert poller.shards == [0, 1, 2]
    assert answer["shardRanges"] == [[0, 2]]
    assert invocations.events == []


def held(shard_id: int, *, seconds_ago: float = 1.0) -> ShardStatus:
    claimed_at = FakeClock().now() - timedelta(seconds=seconds_ago)
    return ShardStatus(shard_id, owner_id="other", claimed_at=claimed_at, is_free=False)


def test_a_tick_that_finds_everything_owned_ends_without_a_word_to_the_metrics() -> None:
    poller, reports, invocations = FakePoller(), Reports(), Invocations()
    owned = {shard_id: held(shard_id) for shard_id in range(6)}
    function = make_function(poller, [ShardMap(6)], invocations, reports=reports, owned=owned, shards_per_poller=2)
    assert function(SCHEDULED, Context())["shardRanges"] == []
    assert (poller.runs, reports.fired, invocations.events) == ([], [], [])


def test_where_pollers_never_sleep_to_be_woken_is_a_tick() -> None:
    poller = FakePoller()
    make_function(poller, [ShardMap(2)], Invocations())(WAKE_EVENT, Context())
    assert poller.runs[0][0] == [0, 1]


def test_a_tick_takes_the_first_part_that_needs_a_poller_and_hands_on_the_others() -> None:
    poller, invocations = FakePoller(), Invocations()
    owned = {shard_id: held(shard_id) for shard_id in (0, 1, 2, 5)}
    make_function(poller, [ShardMap(6)], invocations, owned=owned, shards_per_poller=2)(SCHEDULED, Context())
    assert poller.runs[0][0] == [2, 3]
    assert invocations.events == [{"shardRanges": [[4, 5]]}]


@pytest.mark.parametrize(("seconds_ago", "parts"), [(640, 0), (660, 1)])
def test_a_tick_starts_a_successor_for_a_poller_that_ends_before_the_next_one(seconds_ago: float, parts: int) -> None:
    poller = FakePoller()
    owned = {0: held(0, seconds_ago=seconds_ago), 1: held(1)}
    function = make_function(poller, [ShardMap(2)], Invocations(), owned=owned)
    function(SCHEDULED, Context(remaining_milliseconds=900_000))
    assert len(poller.runs) == parts


def test_a_poller_whose_seat_another_holds_does_not_poll() -> None:
    poller = FakePoller()
    owned = {2_000_000: held(2_000_000)}
    assert make_function(poller, [ShardMap(2)], Invocations(), owned=owned)(SCHEDULED, Context())["shardRanges"] == []
    assert poller.runs == []


def test_the_first_namespace_is_waited_for() -> None:
    poller = FakePoller()
    function = make_function(poller, [ShardMap(0), ShardMap(0), ShardMap(2)], Invocations())
    function(SCHEDULED, Context())
    assert [shard_ids for shard_ids, _ in poller.runs] == [[0, 1]]


def test_no_shards_by_the_deadline_is_no_failure() -> None:
    poller = FakePoller()
    function = make_function(poller, [ShardMap(0)], Invocations(), deadline_margin_seconds=4)
    assert function(SCHEDULED, Context(remaining_milliseconds=4000))["shardRanges"] == []
    assert poller.runs == []


def test_a_store_that_comes_back_is_polled() -> None:
    poller = FakePoller()
    function = make_function(poller, [StoreUnavailable("throttled"), ShardMap(1)], Invocations())
    function(SCHEDULED, Context())
    assert [shard_ids for shard_ids, _ in poller.runs] == [[0]]


def test_a_store_that_stays_away_is_an_error_at_the_deadline() -> None:
    function = make_function(FakePoller(), [StoreUnavailable("gone")], Invocations(), deadline_margin_seconds=4)
    with pytest.raises(StoreUnavailable):
        function(SCHEDULED, Context(remaining_milliseconds=4000))


def test_a_part_that_cannot_be_handed_on_fails_the_invocation_after_its_own_part() -> None:
    invocations = Invocations(failures=1)
    poller = FakePoller(until=lambda: len(invocations.events) == 2)
    function = make_function(poller, [ShardMap(6)], invocations, shards_per_poller=2)
    with pytest.raises(FanOutFailed, match="1 parts"):
        function(SCHEDULED, Context())
    assert len(poller.runs) == 1


@pytest.mark.parametrize(
    "event",
    [
        {},
        None,
        [],
        "poll",
        {"detail-type": "Other"},
        {"shardRanges": []},
        {"shardRanges": [[0]]},
        {"shardRanges": [[0, 1, 2]]},
        {"shardRanges": [["0", "1"]]},
        {"shardRanges": [[0.0, 1.5]]},
        {"shardRanges": [[2, 1]]},
        {"shardRanges": [[-1, 1]]},
        {"shardRanges": [[0, 10**9]]},
        {"shardRanges": [[0, 4096]]},
        {"shardRanges": [[0, 1]], "extra": 1},
        {"wake": False},
        {"wake": True, "shardRanges": [[0, 1]]},
        {"shardRanges": {1, 2}},
    ],
)
def test_any_other_event_is_refused_before_anything_is_polled(event: Any) -> None:
    poller = FakePoller()
    with pytest.raises(InvalidInput):
        make_function(poller, [ShardMap(1)], Invocations())(event, Context())
    assert poller.runs == []


@given(st.sets(st.integers(0, 60)))
def test_ranges_and_ids_are_the_same(shard_ids: set[int]) -> None:
    ranges = to_ranges(sorted(shard_ids))
    assert [i for first, last in ranges for i in range(first, last + 1)] == sorted(shard_ids)
    assert all(second[0] - first[1] > 1 for first, second in pairwise(ranges))
