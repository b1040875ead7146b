"""Timers at a local time: ``localTime`` and ``timeZone``, and a new release of tzdata."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from duetime.api.handler import build_handler
from duetime.domain.events import Event, EventsUndelivered
from duetime.domain.times import parse_instant
from duetime.recurrence import zones
from duetime.testing.contract.builders import failed, fired, parked, rescheduled, retried
from duetime.testing.contract.steps import claim, record
from tests.support.api import World, api_world, context_for
from tests.support.http import Answer, Api

URL = "http://receiver.test/"
LOCAL: dict[str, Any] = {"id": "t1", "localTime": "2027-03-28T09:00", "timeZone": "Europe/Berlin", "callbackUrl": URL}
DUE = "2027-03-28T07:00:00.000Z"
NEW_DUE = "2027-03-28T06:00:00.000Z"
"""By the rules of Moscow."""


def times_of(answer: Answer | dict[str, Any]) -> tuple[str, str | None, str | None]:
    shown = answer if isinstance(answer, dict) else answer.json()
    return shown["executeAt"], shown["localTime"], shown["timeZone"]


def new_rules(patch: pytest.MonkeyPatch) -> None:
    """Let a release of tzdata move Berlin to the time of Moscow, for good."""
    before = zones.zone
    patch.setattr(zones, "zone", lambda name: before("Europe/Moscow" if name == "Europe/Berlin" else name))


class TestCreate:
    def test_it_is_shown_as_an_instant_too(self, world: World) -> None:
        answer = world.api.create(LOCAL)
        assert answer.status == 201
        assert times_of(answer) == (DUE, "2027-03-28T09:00:00", "Europe/Berlin")
        assert world.api.read("t1").text == answer.text
        assert times_of(world.api.list().json()["items"][0]) == times_of(answer)
        batch = {"timers": [LOCAL | {"id": "t2", "localTime": "2027-03-28T09:00:30"}]}
        assert world.api.call("POST", f"{world.api.timers}/batch", batch).json()["items"][0]["status"] == 201
        assert times_of(world.api.read("t2"))[0] == "2027-03-28T07:00:30.000Z"

    @pytest.mark.parametrize(
        ("local", "dst", "due"),
        [
            ("2027-03-28T02:30", None, "2027-03-28T01:00:00.000Z"),
            ("2027-03-28T02:30", "once", "2027-03-28T01:00:00.000Z"),
            ("2027-10-31T02:30", "once", "2027-10-31T00:30:00.000Z"),
            ("2027-10-31T02:30", "SKIP", "2027-10-31T00:30:00.000Z"),
            ("1999-12-31T00:00", None, "1999-12-30T23:00:00.000Z"),
        ],
    )
    def test_where_clocks_are_changed(self, api: Api, local: str, dst: str | None, due: str) -> None:
        assert times_of(api.create(LOCAL | {"localTime": local, "dst": dst}))[0] == due

    @pytest.mark.parametrize(
        ("change", "field"),
        [
            ({"localTime": "2027-03-28T02:30", "dst": "skip"}, "localTime"),
            ({"dst": "both"}, "dst"),
            ({"localTime": "2027-02-30T09:00"}, "localTime"),
            ({"localTime": "2027-03-28T09:00Z"}, "localTime"),
            ({"localTime": "2027-03-28"}, "localTime"),
            ({"localTime": "2027-03-28T09:00:00.5"}, "localTime"),
            ({"localTime": 1}, "localTime"),
            ({"localTime": "1969-12-31T09:00"}, "localTime"),
            ({"timeZone": "Mars/Olympus"}, "timeZone"),
            ({"timeZone": "../etc/passwd"}, "timeZone"),
            ({"timeZone": None}, "timeZone"),
            ({"localTime": None}, "timeZone"),
            ({"localTime": None, "timeZone": None}, "executeAt"),
            ({"localTime": None, "timeZone": None, "delay": "1h", "dst": "once"}, "dst"),
            ({"executeAt": DUE}, "executeAt"),
            ({"delay": "1h"}, "executeAt"),
        ],
    )
    def test_what_is_refused_is_named(self, world: World, change: dict[str, Any], field: str) -> None:
        for answer in (world.api.create(LOCAL | change), world.api.put("t1", LOCAL | change)):
            assert (answer.status, list(answer.faults)) == (400, [field])
        assert world.stored == []


class TestAgain:
    def test_the_same_local_time_is_the_same_timer_whatever_the_rules_are_by_now(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first = world.api.create(LOCAL)
        new_rules(monkeypatch)
        for body in (LOCAL, LOCAL | {"localTime": "2027-03-28T09:00:00"}, LOCAL | {"dst": "skip"}):
            for answer in (world.api.create(body), world.api.put("t1", body)):
                assert (answer.status, answer.text) == (200, first.text)

    @pytest.mark.parametrize(
        "change", [{"localTime": "2027-03-28T10:00"}, {"timeZone": "Europe/Paris"}, {"payload": 1}]
    )
    def test_another_one_is_a_conflict(self, api: Api, change: dict[str, Any]) -> None:
        api.create(LOCAL)
        assert api.create(LOCAL | change).status == 409
        assert api.create({"id": "t1", "executeAt": DUE, "callbackUrl": URL}).status == 409

    def test_put_replaces_it_by_an_instant_and_back(self, api: Api) -> None:
        api.create(LOCAL)
        replaced = api.put("t1", {"executeAt": DUE, "callbackUrl": URL})
        assert (replaced.json()["revision"], times_of(replaced)) == (2, (DUE, None, None))
        assert times_of(api.put("t1", LOCAL))[1] == "2027-03-28T09:00:00"


class TestPatch:
    def test_what_is_omitted_stays(self, world: World) -> None:
        first = world.api.create(LOCAL)
        firing_id = world.timer("t1").firing_id
        assert times_of(world.api.patch("t1", {"tags": ["a"]})) == times_of(first)
        assert world.timer("t1").firing_id == firing_id

    @pytest.mark.parametrize("change", [{"executeAt": DUE}, {"delay": "1h"}])
    def test_an_instant_removes_it(self, api: Api, change: dict[str, Any]) -> None:
        api.create(LOCAL)
        assert times_of(api.patch("t1", change))[1:] == (None, None)

    def test_an_instant_becomes_one(self, world: World) -> None:
        world.api.create({"id": "t1", "delay": "1h", "callbackUrl": URL})
        patched = world.api.patch("t1", {"localTime": "2027-03-28T09:00", "timeZone": "Europe/Berlin"})
        assert times_of(patched) == (DUE, "2027-03-28T09:00:00", "Europe/Berlin")
        assert patched.json()["nextAttemptAt"] == DUE

    @pytest.mark.parametrize(
        ("change", "field"),
        [
            ({"localTime": "2027-03-28T10:00"}, "timeZone"),
            ({"timeZone": "Europe/Paris"}, "timeZone"),
            ({"localTime": None}, "localTime"),
            ({"dst": "skip"}, "dst"),
        ],
    )
    def test_they_go_together(self, api: Api, change: dict[str, Any], field: str) -> None:
        first = api.create(LOCAL)
        assert list(api.patch("t1", change).faults) == [field]
        assert api.read("t1").text == first.text

    def test_an_instant_instead_leaves_the_attempt_in_flight_alone(self, world: World) -> None:
        """What is sent is the same, and so is when: the outcome of the attempt is recorded."""
        world.api.create(LOCAL | {"localTime": "2026-12-20T16:30"})
        in_flight = world.timer("t1")
        lease = claim(world.store, in_flight.shard_id)
        world.api.patch("t1", {"executeAt": "2026-12-20T15:30:00Z"})
        record(world.store, [fired(in_flight)], lease)
        assert world.api.read("t1").json()["state"] == "Fired"


@dataclass
class Bus:
    """Where events go; it refuses some of them when ``is_broken``."""

    events: list[Event] = field(default_factory=list)
    is_broken: bool = False

    def publish(self, events: Sequence[Event]) -> None:
        self.events += events
        if self.is_broken:
            raise EventsUndelivered("no answer", events[:1])


@pytest.fixture
def bus() -> Bus:
    return Bus()


@pytest.fixture
def moving(bus: Bus) -> Iterator[World]:
    with api_world() as world:
        context = replace(context_for(world.store, world.clock, world.stored), publish=bus.publish)
        yield replace(world, api=Api(build_handler(context)))


def recompute(world: World, **body: Any) -> dict[str, Any]:
    answer = world.api.call("POST", f"{world.api.timers}/recompute", body)
    assert answer.status == 200
    return dict(answer.json())


class TestRecompute:
    def test_what_new_rules_move_is_moved_logged_and_announced(
        self, moving: World, bus: Bus, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        moving.api.create(LOCAL | {"tags": ["a"], "correlationId": "c"})
        moving.api.create(LOCAL | {"id": "utc", "timeZone": "UTC"})
        moving.api.create({"id": "instant", "executeAt": DUE, "callbackUrl": URL})
        before = moving.timer("t1")
        assert recompute(moving) == {"affected": 0, "skipped": 0, "nextCursor": None}

        new_rules(monkeypatch)
        assert recompute(moving, dryRun=True)["affected"] == 1
        assert (times_of(moving.api.read("t1"))[0], bus.events) == (DUE, [])
        moving.stored.clear()
        with caplog.at_level(logging.INFO):
            assert recompute(moving) == {"affected": 1, "skipped": 0, "nextCursor": None}

        after = moving.api.read("t1").json()
        assert times_of(after) == (NEW_DUE, "2027-03-28T09:00:00", "Europe/Berlin")
        assert (after["nextAttemptAt"], after["revision"]) == (NEW_DUE, 2)
        assert moving.timer("t1").firing_id == before.firing_id
        assert [timer.timer_id for timer in moving.stored] == ["t1"]
        (event,) = bus.events
        assert event.document() == {
            "id": str(event.event_id),
            "type": "timer.moved",
            "namespace": "default",
            "timerId": "t1",
            "timerUuid": str(before.timer_uuid),
            "occurredAt": "2026-12-20T15:30:00.000Z",
            "executeAt": NEW_DUE,
            "previousExecuteAt": DUE,
            "localTime": "2027-03-28T09:00:00",
            "timeZone": "Europe/Berlin",
            "tzdataVersion": zones.VERSION,
            "correlationId": "c",
            "tags": ["a"],
        }
        (line,) = [each for each in caplog.records if getattr(each, "action", "") == "timer.moved"]
        assert line.__dict__["event"] == event.document()
        assert recompute(moving)["affected"] == 0
        assert moving.api.put("t1", LOCAL | {"tags": ["a"], "correlationId": "c"}).json()["revision"] == 2

    def test_it_goes_on_where_it_stopped(self, moving: World, monkeypatch: pytest.MonkeyPatch) -> None:
        for number in range(7):
            moving.api.create(LOCAL | {"id": f"t{number}"})
        new_rules(monkeypatch)
        page = recompute(moving, limit=2)
        affected = page["affected"]
        while page["nextCursor"] is not None:
            assert page["affected"] <= 2
            page = recompute(moving, limit=2, cursor=page["nextCursor"])
            affected += page["affected"]
        assert affected == 7
        assert {times_of(each)[0] for each in moving.api.all_pages()} == {NEW_DUE}

    def test_a_batch_that_is_spread_stays_so(self, moving: World, monkeypatch: pytest.MonkeyPatch) -> None:
        batch = {"timers": [LOCAL | {"id": f"t{number}"} for number in range(5)], "spread": "1h"}
        for statuses in ({201}, {200}):
            items = moving.api.call("POST", f"{moving.api.timers}/batch", batch).json()["items"]
            assert {each["status"] for each in items} == statuses
        before = [times_of(each) for each in moving.api.all_pages()]
        assert len(set(before)) == 5
        assert recompute(moving)["affected"] == 0
        new_rules(monkeypatch)
        assert recompute(moving)["affected"] == 5
        for (due, *old), (moved, *new) in zip(before, map(times_of, moving.api.all_pages()), strict=True):
            assert parse_instant(moved) == parse_instant(due) - timedelta(hours=1)
            assert old == new

    @pytest.mark.parametrize(
        "outcome",
        [
            lambda timer: retried(timer, next_attempt_at=timer.content.execute_at + timedelta(days=200)),
            lambda timer: rescheduled(timer, execute_at=timer.content.execute_at + timedelta(days=200)),
            lambda timer: parked(timer, until=timer.content.execute_at + timedelta(days=200)),
            fired,
            failed,
        ],
    )
    def test_what_has_been_tried_stays(self, moving: World, monkeypatch: pytest.MonkeyPatch, outcome: Any) -> None:
        moving.api.create(LOCAL | {"localTime": "2026-12-20T16:30"})
        timer = moving.timer("t1")
        record(moving.store, [outcome(timer)], claim(moving.store, timer.shard_id))
        before = moving.api.read("t1")
        assert times_of(before)[1] == "2026-12-20T16:30:00"
        new_rules(monkeypatch)
        assert recompute(moving)["affected"] == 0
        assert moving.api.read("t1").text == before.text

    def test_what_is_due_redriven_or_fired_by_hand_stays(
        self, moving: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        moving.api.create(LOCAL | {"id": "due", "localTime": "2026-12-20T16:30"})
        moving.api.create(LOCAL | {"id": "by hand"})
        moving.api.call("POST", f"{moving.api.timers}/by%20hand/fire")
        moving.api.create(LOCAL | {"id": "cancelled"})
        moving.api.call("POST", f"{moving.api.timers}/cancelled/cancel")
        new_rules(monkeypatch)
        assert recompute(moving)["affected"] == 0

    def test_a_zone_that_is_gone_leaves_its_timers_as_they_are(
        self, moving: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        moving.api.create(LOCAL)
        monkeypatch.setattr(zones, "names", lambda: frozenset({"UTC"}))
        zones.zone.cache_clear()
        assert recompute(moving)["affected"] == 0
        assert times_of(moving.api.read("t1"))[0] == DUE

    def test_what_a_gap_swallows_later_still_fires(self, moving: World, monkeypatch: pytest.MonkeyPatch) -> None:
        """``skip`` refuses what is asked for; what was accepted is kept."""
        moving.api.create(LOCAL | {"localTime": "2027-03-14T02:30", "dst": "skip"})
        before = zones.zone
        monkeypatch.setattr(zones, "zone", lambda _: before("America/New_York"))
        assert recompute(moving)["affected"] == 1
        assert times_of(moving.api.read("t1"))[0] == "2027-03-14T07:00:00.000Z"

    def test_a_bus_that_does_not_respond_stops_nothing(
        self, moving: World, bus: Bus, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        moving.api.create(LOCAL)
        new_rules(monkeypatch)
        bus.is_broken = True
        assert recompute(moving)["affected"] == 1
        (line,) = [each for each in caplog.records if getattr(each, "action", "") == "event.undelivered"]
        assert line.__dict__["event"]["timerId"] == "t1"

    def test_what_others_change_meanwhile_is_skipped(
        self, moving: World, bus: Bus, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        moving.api.create(LOCAL)
        new_rules(monkeypatch)
        publish = bus.publish

        def change(events: Sequence[Event]) -> None:
            publish(events)
            moving.api.patch("t1", {"delay": "1h"})

        bus.publish = change  # type: ignore[method-assign]
        context = replace(context_for(moving.store, moving.clock), publish=bus.publish)
        other = replace(moving, api=Api(build_handler(context)))
        assert recompute(other) == {"affected": 0, "skipped": 1, "nextCursor": None}
        assert times_of(moving.api.read("t1")) == ("2026-12-20T16:30:00.000Z", None, None)


def test_a_damaged_local_time_is_not_shown_and_does_not_move(moving: World) -> None:
    moving.api.create(LOCAL)
    timer = moving.timer("t1")
    damaged = replace(timer, content=replace(timer.content, timing_json='{"local_time":7}'))
    moving.api.call("DELETE", f"{moving.api.timers}/t1")
    moving.store.transfer.load_timers([damaged], now=moving.clock.now())
    assert times_of(moving.api.read("t1")) == (DUE, None, None)
    assert recompute(moving)["affected"] == 0


def test_the_due_instant_counts_in_filters(world: World) -> None:
    world.api.create(LOCAL)
    at: datetime = parse_instant(DUE)
    assert world.api.list(dueFrom=DUE).json()["items"]
    assert world.timer("t1").content.execute_at == at
