"""What processes do by themselves when a new release of tzdata is deployed."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from duetime.app.local_timers import LocalTimers
from duetime.app.pages import ChangedPage, PageOfWork
from duetime.app.schedule_lists import ScheduleLists
from duetime.app.schedules import Schedules
from duetime.app.tzdata_release import OTHERS_SECONDS, SETTLE_SECONDS, TZDATA_SHARD, TzdataRelease
from duetime.domain.errors import NamespaceUnreadable, StoreUnavailable
from duetime.domain.namespaces import Namespace
from duetime.domain.schedule_timers import standing_at
from duetime.domain.schedules import Occurrence
from duetime.domain.timers import Timer
from duetime.domain.times import parse_instant
from duetime.recurrence import zones
from tests.support.api import World

URL = "http://receiver.test/"
LOCAL: dict[str, Any] = {"localTime": "2027-03-28T09:00", "timeZone": "Europe/Berlin", "callbackUrl": URL}
DAILY: dict[str, Any] = {"cron": "0 9 * * *", "timeZone": "Europe/Berlin", "callbackUrl": URL}
DUE, NEW_DUE = "2027-03-28T07:00:00.000Z", "2027-03-28T06:00:00.000Z"
OLD_NEXT, NEXT = "2026-12-21T07:00:00.000Z", "2026-12-21T08:00:00.000Z"
OLD, NEW = "2026f", "2027a"


class Never(threading.Event):
    """Is not set, and nobody waits for it."""

    def wait(self, timeout: float | None = None) -> bool:
        return False


NEVER = Never()


@dataclass
class Rules:
    """Of timers at a local time: Berlin has its time, or that of Moscow. A schedule remembers its zone."""

    patch: pytest.MonkeyPatch
    before: Callable[[str], Any] = zones.zone

    def change(self) -> None:
        self.patch.setattr(zones, "zone", self.zone)

    def zone(self, name: str) -> Any:
        return self.before("Europe/Moscow" if name == "Europe/Berlin" else name)

    def turn_back(self) -> None:
        self.patch.setattr(zones, "zone", self.before)


@pytest.fixture
def rules(monkeypatch: pytest.MonkeyPatch) -> Rules:
    return Rules(monkeypatch)


@dataclass
class Worker:
    """A process of a release. ``pages`` are those that it has computed again, by namespace and kind."""

    world: World
    release: str = NEW
    name: str = "worker"
    page_seconds: float = 0.0
    pages: list[tuple[str, int]] = field(default_factory=list)
    fails: dict[tuple[str, int], Exception] = field(default_factory=dict)
    dead: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self.work = TzdataRelease(
            self.world.store,
            self.world.clock,
            owner_id=self.name,
            has_died=self.dead.__contains__,
            kinds=lambda: (self._schedules, self._timers),
            release=self.release,
        )
        store, told = self.world.store, self.world.stored
        self._of_schedules = ScheduleLists(Schedules(store, told.extend, lambda _: None))
        self._of_timers = LocalTimers(store, told.extend, lambda _: None)

    def _schedules(self, namespace: Namespace, work: PageOfWork) -> ChangedPage:
        self._note(namespace, 0)
        return self._of_schedules.recompute_page(namespace, work)

    def _timers(self, namespace: Namespace, work: PageOfWork) -> ChangedPage:
        self._note(namespace, 1)
        return self._of_timers.recompute_page(namespace, work)

    def _note(self, namespace: Namespace, kind: int) -> None:
        self.world.clock.advance(self.page_seconds)
        if error := self.fails.pop((namespace.name, kind), None):
            raise error
        self.pages.append((namespace.name, kind))

    def step(self) -> float | None:
        return self.work.step(NEVER)

    def settled(self) -> float | None:
        """Work until there is nothing to do for now."""
        while (wait := self.step()) == 0.0:
            pass
        return wait


def times(world: World) -> tuple[str, str]:
    schedule = world.api.call("GET", "/v1/namespaces/default/schedules/s").json()
    return world.api.read("t").json()["executeAt"], schedule["nextScheduledAt"]


@pytest.fixture
def filled(world: World) -> World:
    """One timer, one schedule and one timer without a local time, all by the release before."""
    assert Worker(world, OLD).settled() == SETTLE_SECONDS
    world.clock.advance(SETTLE_SECONDS)
    assert Worker(world, OLD).settled() is None
    world.api.create(LOCAL | {"id": "t"})
    world.api.create({"id": "instant", "executeAt": DUE, "callbackUrl": URL})
    assert world.api.call("POST", "/v1/namespaces/default/schedules", DAILY | {"id": "s"}).status == 201
    early = Occurrence(parse_instant(OLD_NEXT), parse_instant(OLD_NEXT))

    def by_old_rules(timer: Timer) -> Timer:
        assert timer.schedule is not None
        return standing_at(timer, replace(timer.schedule, pending=early), now=world.clock.now())

    world.store.schedules.change(world.namespace, "s", by_old_rules, now=world.clock.now())
    world.stored.clear()
    assert times(world) == (DUE, OLD_NEXT)
    return world


def test_what_is_pending_is_computed_again_once(filled: World, rules: Rules) -> None:
    rules.change()
    assert Worker(filled).settled() == SETTLE_SECONDS
    assert times(filled) == (NEW_DUE, NEXT)
    assert [timer.timer_id for timer in filled.stored] == ["\x01s", "t"]
    assert filled.api.read("instant").json()["revision"] == 1

    other = Worker(filled, name="another")
    assert other.settled() == SETTLE_SECONDS
    filled.clock.advance(SETTLE_SECONDS)
    assert other.settled() is None
    assert len(filled.stored) == 2
    again = Worker(filled, name="a later one")
    assert again.settled() is None
    assert again.pages == []


def test_a_second_pass_corrects_what_processes_of_the_release_before_computed_meanwhile(
    filled: World, rules: Rules
) -> None:
    rules.change()
    worker = Worker(filled)
    worker.settled()
    rules.turn_back()
    old = Worker(filled, OLD, name="old")
    assert (old.settled(), old.pages) == (None, [])
    assert filled.api.put("t", LOCAL | {"tags": ["changed by an old one"]}).json()["executeAt"] == DUE
    rules.change()
    filled.clock.advance(SETTLE_SECONDS - 1)
    assert worker.settled() == 1.0
    filled.clock.advance(1)
    assert worker.settled() is None
    assert times(filled) == (NEW_DUE, NEXT)


def test_another_process_goes_on_where_one_has_stopped(world: World) -> None:
    for name in ("a", "b", "c"):
        world.store.catalogue.create_namespace(name, num_shards=1, dedicated=False, now=world.clock.now())
    first = Worker(world, page_seconds=3, fails={("c", 0): StoreUnavailable("down")})
    assert [first.step(), first.step()] == [0.0, 0.0]
    with pytest.raises(StoreUnavailable):
        first.step()
    assert first.pages == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
    second = Worker(world, name="second")
    assert second.settled() == SETTLE_SECONDS
    assert second.pages == [("c", 0), ("c", 1), ("default", 0), ("default", 1)]


def test_a_list_of_many_pages_goes_on_in_its_middle(world: World, rules: Rules) -> None:
    timers = [LOCAL | {"id": f"t{number:03}"} for number in range(250)]
    world.api.call("POST", f"{world.api.timers}/batch", {"timers": timers})
    rules.change()
    first = Worker(world, page_seconds=3)
    first.step()
    assert len(world.stored) - 250 == 100, "a page of schedules and one of timers"
    second = Worker(world, name="second")
    second.settled()
    assert second.pages == [("default", 1)] * 2
    assert {each["executeAt"] for each in world.api.all_pages()} == {NEW_DUE}


def test_one_process_works_at_a_time_and_a_dead_one_is_replaced_at_once(world: World) -> None:
    def claim() -> None:
        world.store.leases.claim([TZDATA_SHARD], "other", lease_seconds=60, metadata="{}", now=world.clock.now())

    claim()
    worker = Worker(world)
    assert (worker.step(), worker.pages) == (OTHERS_SECONDS, [])
    assert Worker(world, dead=frozenset({"other"})).settled() == SETTLE_SECONDS


@pytest.mark.parametrize("metadata", ["", "null", '{"kind": 7}', '{"release": 1}'])
def test_a_place_that_cannot_be_read_is_the_beginning(world: World, metadata: str) -> None:
    world.store.leases.claim([TZDATA_SHARD], "x", lease_seconds=0.001, metadata=metadata, now=world.clock.now())
    world.clock.advance(1)
    worker = Worker(world)
    assert worker.settled() == SETTLE_SECONDS
    assert worker.pages == [("default", 0), ("default", 1)]


def test_a_namespace_that_cannot_be_read_keeps_nobody_else_waiting(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.store.catalogue.create_namespace("a", num_shards=1, dedicated=False, now=world.clock.now())
    worker = Worker(world, fails={("a", 0): NamespaceUnreadable("a")})
    assert worker.settled() == SETTLE_SECONDS
    assert worker.pages == [("a", 1), ("default", 0), ("default", 1)]
    (line,) = [each for each in caplog.records if each.__dict__.get("action") == "tzdata.namespace_failed"]
    assert line.__dict__["namespace"] == "a"


def test_begin_and_end_are_logged(filled: World, rules: Rules, caplog: pytest.LogCaptureFixture) -> None:
    rules.change()
    with caplog.at_level(logging.INFO, "duetime.app.tzdata_release"):
        Worker(filled).settled()
    lines = [each.__dict__ for each in caplog.records if each.__dict__.get("action", "").startswith("tzdata.")]
    assert [(line["action"], line["release"], line.get("moved")) for line in lines] == [
        ("tzdata.began", NEW, None),
        ("tzdata.applied", NEW, 2),
    ]


class Stop(threading.Event):
    """Set after so many waits, which take no time."""

    def __init__(self, clock: Any, waits: int) -> None:
        super().__init__()
        self._clock = clock
        self._waits = waits
        self.waited: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        if timeout:
            self._clock.advance(timeout)
            self.waited.append(timeout)
            if len(self.waited) == self._waits:
                self.set()
        return self.is_set()


def test_it_runs_until_all_is_done(world: World, caplog: pytest.LogCaptureFixture) -> None:
    worker, stop = Worker(world, fails={("default", 0): StoreUnavailable("down")}), Stop(world.clock, 10)
    worker.work.run(stop)
    assert stop.waited == [OTHERS_SECONDS, SETTLE_SECONDS]
    assert worker.pages == [("default", 0), ("default", 1)] * 2
    assert [each.__dict__["action"] for each in caplog.records] == ["tzdata.retried"]
    before = len(worker.pages)
    worker.work.run(NEVER)
    assert len(worker.pages) == before


def test_it_stops_when_it_is_told_to_or_has_to_wait(world: World) -> None:
    stop = Stop(world.clock, 1)
    Worker(world).work.run(stop)
    assert stop.waited == [SETTLE_SECONDS]
    resting = Stop(world.clock, 10)
    late = Worker(world, release="2027b", name="late")
    late.work.run(resting, may_wait=False)
    assert (resting.waited, late.pages) == ([], [("default", 0), ("default", 1)])


def test_pages_take_a_tenth_of_the_time(world: World) -> None:
    for name in ("a", "b"):
        world.store.catalogue.create_namespace(name, num_shards=1, dedicated=False, now=world.clock.now())
    began = world.clock.now()
    worker, stop = Worker(world, page_seconds=0.1), Stop(world.clock, 7)
    worker.work.step(stop)
    assert len(worker.pages) == 6
    assert stop.waited == pytest.approx([0.9] * 5)
    assert world.clock.now() - began == timedelta(seconds=5.1)
    assert isinstance(began, datetime)
