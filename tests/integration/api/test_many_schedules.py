"""Many schedules, or many occurrences of one: filters, changes in bulk, backfills, new rules of time zones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from duetime.api.handler import build_handler
from duetime.app.in_parts import BUDGET_SECONDS
from duetime.app.schedules import Schedules
from duetime.domain.errors import ScheduleEnded
from duetime.domain.ids import backfill_timer_id, occurrence_firing_id
from duetime.domain.schedule_timers import standing_at
from duetime.domain.schedules import Occurrence
from duetime.domain.timers import Rearm, Timer, TimerState
from duetime.stores.port.timers import TimerRef
from duetime.testing.contract.builders import fired, parked
from duetime.testing.contract.steps import claim, read_all, record
from tests.support.api import World, context_for
from tests.support.clock import NOW
from tests.support.http import Api
from tests.support.parts import Intercepted
from tests.support.schedule_api import NAMESPACE, PATH, created


def bulk(world: World, action: str, **body: Any) -> Any:
    answer = world.api.call("POST", f"{PATH}/{action}", body)
    assert answer.status == 200, answer.text
    return answer.json()


def listed(world: World, **query: Any) -> set[str]:
    """The ids of all pages."""
    found: list[str] = []
    cursor = None
    while True:
        more: dict[str, Any] = {} if cursor is None else {"cursor": cursor}
        page = world.api.call("GET", PATH, query={**query, "limit": 2, **more}).json()
        found += [each["id"] for each in page["items"]]
        cursor = page["nextCursor"]
        if cursor is None:
            assert len(set(found)) == len(found)
            return set(found)


def test_lists_are_filtered(world: World) -> None:
    created(world, id="a", tags=["x"])
    created(world, id="b", tags=["x", "y"], paused=True)
    created(world, id="c", cron="0 20 * * *")
    created(world, id="d", startAt="2026-12-20T16:00:00Z", endAt="2026-12-20T16:00:00Z", cron=..., every="1h")
    (schedule,) = (each for each in world.stored if each.schedule_id == "d")
    assert schedule.schedule is not None
    ended = standing_at(schedule, replace(schedule.schedule, pending=None), now=NOW)
    world.store.schedules.change(NAMESPACE, "d", lambda _: ended, now=NOW)

    assert listed(world) == {"a", "b", "c", "d"}
    assert listed(world, state="active") == {"a", "c"}
    assert listed(world, state="Paused") == {"b"}
    assert listed(world, state="Ended") == {"d"}
    assert listed(world, tag="x") == {"a", "b"}
    assert listed(world, tag="x", state="Active") == {"a"}
    assert listed(world, dueTo="2026-12-21T09:00:00Z") == {"c"}
    assert listed(world, dueFrom="2026-12-21T09:00:00Z") == {"a", "b"}
    assert world.api.call("GET", PATH, query={"state": "Fired"}).faults.keys() == {"state"}


def test_schedules_are_paused_and_resumed_by_filter(world: World) -> None:
    for each in range(5):
        created(world, id=f"s{each}", tags=["x"] if each < 3 else [])

    assert bulk(world, "pause", tag="x", dryRun=True) == {"affected": 3, "skipped": 0, "nextCursor": None}
    assert listed(world, state="Paused") == set()
    first = bulk(world, "pause", tag="x", limit=1, reason="moving")
    assert first["nextCursor"] is not None
    changed, cursor = first["affected"], first["nextCursor"]
    while cursor is not None:
        page = bulk(world, "pause", tag="x", limit=1, reason="moving", cursor=cursor)
        changed, cursor = changed + page["affected"], page["nextCursor"]
    assert changed == 3
    assert listed(world, state="Paused") == {"s0", "s1", "s2"}
    assert world.api.call("GET", f"{PATH}/s0").json()["pauseReason"] == "moving"
    assert bulk(world, "pause", tag="x")["affected"] == 0
    assert bulk(world, "resume")["affected"] == 3
    assert listed(world, state="Paused") == set()
    other = {"tag": "y", "cursor": first["nextCursor"]}
    assert world.api.call("POST", f"{PATH}/pause", other).faults.keys() == {"cursor"}
    assert world.api.call("POST", f"{PATH}/resume", {"reason": "r"}).faults.keys() == {"reason"}


def test_a_filter_in_the_query_is_refused_and_nothing_is_paused(world: World) -> None:
    created(world, id="a")
    assert world.api.call("POST", f"{PATH}/pause", {}, query={"tag": "x"}).faults.keys() == {"tag"}
    assert listed(world, state="Paused") == set()


def test_what_ends_before_it_is_paused_is_skipped(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    created(world, id="a")

    def ends(*_: Any, **__: Any) -> Timer:
        raise ScheduleEnded("it has ended")

    monkeypatch.setattr(Schedules, "pause", ends)
    assert bulk(world, "pause") == {"affected": 0, "skipped": 1, "nextCursor": None}


def backfill(world: World, action: str = "backfill", **body: Any) -> Any:
    answer = world.api.call("POST", f"{PATH}/s1/{action}", body)
    assert answer.status == 200, answer.text
    return answer.json()


RANGE = {"from": "2026-12-20T09:00:00Z", "to": "2026-12-20T14:00:00Z"}


def waiting(world: World) -> list[Timer]:
    found = world.store.schedules.beside(
        NAMESPACE, backfill_timer_id("s1"), cursor=None, limit=100, now=world.clock.now()
    )
    return sorted(found.items, key=lambda each: each.content.execute_at)


def test_a_backfill_makes_a_timer_for_each_occurrence_at_a_bounded_rate(world: World) -> None:
    created(world, cron=..., every="1h", payload={"n": 1})
    told = {"created": 5, "skipped": 0, "lastDueAt": "2026-12-20T15:30:08.000Z", "nextCursor": None}

    assert backfill(world, **RANGE, rateLimit=0.5, dryRun=True) == told
    assert waiting(world) == []
    assert backfill(world, **RANGE, rateLimit=0.5) == told
    timers = waiting(world)
    assert [each.next_attempt_at for each in timers] == [NOW + timedelta(seconds=2 * at) for at in range(5)]
    schedules = [each.schedule for each in timers]
    hours = [None if each is None or each.pending is None else each.pending.scheduled_at.hour for each in schedules]
    assert hours == [9, 10, 11, 12, 13]
    assert timers[0].content.payload_json == '{"n": 1}'
    assert timers[0].firing_id == occurrence_firing_id("default", "s1", datetime(2026, 12, 20, 9, tzinfo=UTC))
    assert world.stored[-5:] == timers
    assert listed(world) == {"s1"}


def test_a_backfill_is_made_a_page_at_a_time_at_the_rate_of_the_whole(world: World) -> None:
    created(world, cron=..., every="1h")
    pages = [backfill(world, **RANGE, limit=2)]
    while pages[-1]["nextCursor"] is not None:
        world.clock.advance(0.5)
        pages.append(backfill(world, **RANGE, limit=2, cursor=pages[-1]["nextCursor"]))

    assert [page["created"] for page in pages] == [2, 2, 1]
    assert [each.next_attempt_at for each in waiting(world)] == [NOW + timedelta(seconds=at) for at in range(5)]
    other = {**RANGE, "rateLimit": 9, "cursor": pages[0]["nextCursor"]}
    assert world.api.call("POST", f"{PATH}/s1/backfill", other).faults.keys() == {"cursor"}


@pytest.mark.parametrize("end", [{}, {"to": "2027-01-01T00:00:00Z"}], ids=["now", "later"])
def test_what_comes_due_between_two_pages_is_not_backfilled(world: World, end: dict[str, str]) -> None:
    created(world, cron=..., every="1h")
    given: dict[str, Any] = {"from": "2026-12-20T13:30:00Z", "limit": 1, **end}
    page = backfill(world, **given)
    world.clock.advance(3600)
    assert world.api.call("PATCH", f"{PATH}/s1", {"window": "1s"}).json()["nextScheduledAt"][11:13] == "17"

    assert backfill(world, **given, cursor=page["nextCursor"]) == {
        "created": 1,
        "skipped": 0,
        "lastDueAt": "2026-12-20T15:30:01.000Z",
        "nextCursor": None,
    }


def test_what_is_pending_or_to_come_is_not_backfilled(world: World) -> None:
    created(world, cron=..., every="1h")
    world.clock.advance(7200)  # 16:00 and 17:00 are pending: nobody fires here
    assert backfill(world, **{"from": "2026-12-20T14:30:00Z"}, dryRun=True)["created"] == 1
    assert backfill(world, **{"from": "2026-12-20T14:30:00Z", "to": "2027-01-01T00:00:00Z"})["created"] == 1
    assert backfill(world, **{"from": "2026-12-20T15:30:00Z"})["created"] == 0


def test_what_is_to_be_sent_anyway_is_skipped_and_what_was_sent_is_sent_again(world: World) -> None:
    created(world, cron=..., every="1h")
    backfill(world, **RANGE)
    world.clock.advance(60)
    assert backfill(world, **RANGE)["skipped"] == 5
    first = waiting(world)[0]
    record(world.store, [fired(first)], claim(world.store, first.shard_id))
    again = backfill(world, **RANGE)
    assert (again["created"], again["skipped"]) == (1, 4)
    sent = next(each for each in waiting(world) if each.timer_id == first.timer_id)
    assert (sent.state, sent.firing_id) == (TimerState.SCHEDULED, first.firing_id)
    assert sent.next_attempt_at == world.clock.now()


def test_a_backfill_is_cancelled(world: World) -> None:
    created(world, cron=..., every="1h")
    backfill(world, **RANGE)
    first, second, *_ = waiting(world)
    lease = claim(world.store, first.shard_id)
    record(world.store, [fired(first), parked(second, until=NOW + timedelta(hours=1))], lease)

    assert backfill(world, "backfill/cancel", dryRun=True) == {"cancelled": 3, "skipped": 1, "nextCursor": None}
    page = backfill(world, "backfill/cancel", limit=2)
    cancelled, skipped = page["cancelled"], page["skipped"]
    while page["nextCursor"] is not None:
        page = backfill(world, "backfill/cancel", limit=2, cursor=page["nextCursor"])
        cancelled, skipped = cancelled + page["cancelled"], skipped + page["skipped"]
    assert (cancelled, skipped) == (3, 1)
    assert {each.timer_id for each in waiting(world)} == {first.timer_id, second.timer_id}


def test_a_backfill_of_what_is_not_there_or_in_no_range_is_refused(world: World) -> None:
    for action in ("backfill", "backfill/cancel"):
        assert world.api.call("POST", f"{PATH}/s1/{action}", RANGE if action == "backfill" else {}).status == 404
    created(world)
    for wrong, field in (
        ({}, "from"),
        (RANGE | {"rateLimit": 0}, "rateLimit"),
        (RANGE | {"limit": 101}, "limit"),
        (RANGE | {"cursor": "x"}, "cursor"),
    ):
        assert world.api.call("POST", f"{PATH}/s1/backfill", wrong).faults.keys() == {field}
    assert backfill(world, **{"from": RANGE["to"], "to": RANGE["from"]})["created"] == 0


def test_what_new_rules_of_time_zones_move_is_recomputed(world: World) -> None:
    for name in ("a", "b", "c"):
        created(world, id=name, timeZone="Europe/Berlin", paused=name == "c")
    created(world, id="d", startAt="2026-12-20T16:00:00Z", endAt="2026-12-20T16:00:00Z", cron=..., every="1h")
    early = datetime(2026, 12, 21, 7, tzinfo=UTC)  # as if Berlin were two hours ahead

    def by_old_rules(timer: Timer) -> Timer:
        assert timer.schedule is not None
        return standing_at(timer, replace(timer.schedule, pending=Occurrence(early, early)), now=NOW)

    for name in ("a", "c"):
        world.store.schedules.change(NAMESPACE, name, by_old_rules, now=NOW)
    assert world.api.call("GET", f"{PATH}/a").json()["nextScheduledAt"] == "2026-12-21T07:00:00.000Z"

    assert bulk(world, "recompute", dryRun=True) == {"affected": 2, "skipped": 0, "nextCursor": None}
    page = bulk(world, "recompute", limit=1)
    affected = page["affected"]
    while page["nextCursor"] is not None:
        page = bulk(world, "recompute", limit=1, cursor=page["nextCursor"])
        affected += page["affected"]
    assert affected == 2
    assert bulk(world, "recompute")["affected"] == 0
    found = {name: world.api.call("GET", f"{PATH}/{name}").json() for name in "abc"}
    assert {each["nextScheduledAt"] for each in found.values()} == {"2026-12-21T08:00:00.000Z"}
    assert [found[name]["revision"] for name in "abc"] == [3, 1, 3]
    assert found["c"]["state"] == "Paused"


def test_a_schedule_with_very_many_finished_backfills_is_deleted_where_the_last_try_stopped(world: World) -> None:
    created(world, cron=..., every="1m", overlap="allow")
    for hour in range(6):
        hours = {"from": f"2026-12-20T{hour:02}:00:00Z", "to": f"2026-12-20T{hour + 1:02}:00:00Z"}
        backfill(world, **hours, rateLimit=1000)
    timers = world.store.timers
    ids = [TimerRef(each.timer_id) for each in all_beside(world)]
    assert len(ids) == 360
    timers.rearm(NAMESPACE, ids, rearm=Rearm.CANCEL, now=world.clock.now(), expires_at=NOW + timedelta(days=7))
    read = []

    def slowly(name: str, operation: Callable[..., Any], *arguments: Any, **more: Any) -> Any:
        result = operation(*arguments, **more)
        if name == "schedules.beside":
            read.extend(result.items)
            world.clock.advance(BUDGET_SECONDS / 2)
        return result

    store = Intercepted(world.store, slowly)
    api = Api(build_handler(context_for(store, world.clock)))
    statuses = [api.call("DELETE", f"{PATH}/s1").status for _ in range(3)]

    assert statuses == [503, 200, 404]
    assert len(read) == 360, "each is read once"
    assert all_beside(world) == []


def all_beside(world: World) -> list[Timer]:
    return read_all(
        lambda cursor: world.store.schedules.beside(
            NAMESPACE, backfill_timer_id("s1"), cursor=cursor, limit=100, now=NOW
        ),
        max_pages=20,
    )
