"""Redriving and firing by hand over the API, with each store behind it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from duetime.api.handler import build_handler
from duetime.app.in_parts import AT_ONCE, BUDGET_SECONDS
from duetime.domain.outcomes import Outcome, RecordStatus
from duetime.domain.timers import Failure, FailureReason, Timer
from duetime.domain.times import format_instant
from duetime.stores.core.store import Store
from duetime.stores.port.timers import PutMode
from duetime.testing.contract import Subject
from duetime.testing.contract.builders import failed, fired, leased, make_timer, make_timers, parked, retried
from duetime.testing.contract.steps import claim_shard
from tests.support.api import World, context_for
from tests.support.clock import NOW, FakeClock
from tests.support.dynamodb import moto_subject, served_subject
from tests.support.http import Answer, Api
from tests.support.stores import memory_store

HOUR = timedelta(hours=1)


def world_over(store: Store) -> World:
    clock = FakeClock()
    namespace, _ = store.catalogue.create_namespace("default", num_shards=4, dedicated=False, now=NOW)
    stored: list[Timer] = []
    return World(store, clock, namespace, Api(build_handler(context_for(store, clock, stored))), stored)


@pytest.fixture(params=["sqlite", "moto", "ministack"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    if request.param == "sqlite":
        with memory_store() as store:
            yield world_over(store)
    elif request.param == "moto":
        with moto_subject() as subject:
            yield world_over(subject.store)
    else:
        with served_subject(request.getfixturevalue("ministack_client")) as subject:
            yield world_over(subject.store)


@pytest.fixture
def breakable() -> Iterator[tuple[World, Subject]]:
    """A world with a way to break its rows."""
    with moto_subject() as subject:
        yield world_over(subject.store), subject


def put(world: World, *timer_ids: str, **fields: Any) -> list[Timer]:
    timers = [make_timer(world.namespace, timer_id, **fields) for timer_id in timer_ids]
    world.store.timers.put(timers, mode=PutMode.CREATE, now=NOW)
    return timers


def record(world: World, *outcomes: Outcome) -> None:
    """At the present time."""
    now = world.clock.now()
    for shard_id in world.namespace.shard_ids():
        ours = [outcome for outcome in outcomes if outcome.timer.shard_id == shard_id]
        lease = claim_shard(world.store, shard_id, "worker", lease_seconds=10, now=now)
        assert lease is not None
        statuses = world.store.timers.record(leased(ours, lease), now=now)
        assert statuses == [RecordStatus.APPLIED] * len(ours)
        world.store.leases.release([lease], now=now)


def put_failed(
    world: World, *timer_ids: str, reason: FailureReason = FailureReason.TIMEOUT, **fields: Any
) -> list[Timer]:
    timers = put(world, *timer_ids, **fields)
    now = world.clock.now()
    failure = Failure(reason, "it failed", now)
    record(world, *(replace(failed(timer, at=now), failure=failure) for timer in timers))
    return timers


def redrive(world: World, timer_id: str, **more: Any) -> Answer:
    return world.api.call("POST", f"{world.api.timer(timer_id)}/redrive", **more)


def fire(world: World, timer_id: str, **more: Any) -> Answer:
    return world.api.call("POST", f"{world.api.timer(timer_id)}/fire", **more)


def redrive_many(world: World, body: Any = None) -> Answer:
    return world.api.call("POST", "/v1/namespaces/default/redrive", body)


def scheduled(world: World) -> list[str]:
    return sorted(item["id"] for item in world.api.all_pages(state="Scheduled"))


class TestRedrive:
    def test_a_failed_timer_is_scheduled_again(self, world: World) -> None:
        (timer,) = put_failed(world, "t1", payload_json='{"a": 1.0}')
        now = world.clock.advance(60)

        answer = redrive(world, "t1")

        assert (answer.status, answer.headers["etag"]) == (200, '"3"')
        body = answer.json()
        assert (body["state"], body["attempts"], body["revision"]) == ("Scheduled", 0, 3)
        assert body["nextAttemptAt"] == body["updatedAt"] == format_instant(now)
        assert body["executeAt"] == format_instant(NOW)
        assert body["failure"]["reason"] == "Timeout"
        assert world.api.read("t1").text == answer.text
        assert [stored.timer_id for stored in world.stored] == ["t1"]
        assert world.timer("t1").firing_id == timer.firing_id

    def test_a_timer_that_did_not_fail_is_a_409(self, world: World) -> None:
        waiting, ended, at_work = put(world, "waiting", "ended", "at work")
        record(world, fired(ended), parked(at_work, until=NOW + HOUR))
        for timer_id in ("waiting", "ended", "at work"):
            answer = redrive(world, timer_id)
            assert (answer.status, answer.code) == (409, "timer_not_failed"), timer_id
        assert world.timer("waiting") == waiting
        assert world.stored == []

    def test_what_is_not_there_is_a_404(self, world: World) -> None:
        assert redrive(world, "none").code == "timer_not_found"
        assert fire(world, "none").code == "timer_not_found"
        assert redrive(world, "none", headers={"if-match": "*"}).code == "timer_not_found"
        assert world.api.call("POST", "/v1/namespaces/other/redrive").code == "namespace_not_found"
        assert world.api.call("POST", "/v1/namespaces/other/timers/t/redrive").code == "namespace_not_found"

    def test_if_match_is_honoured(self, world: World) -> None:
        put_failed(world, "t1", "t2")
        for tags in ('"1"', '"1", "3"', 'W/"2"'):
            answer = redrive(world, "t1", headers={"if-match": tags})
            assert (answer.status, answer.code) == (412, "revision_mismatch"), tags
        assert redrive(world, "t1", headers={"if-match": '"2"'}).status == 200
        assert redrive(world, "t2", headers={"if-match": "*"}).status == 200

    def test_an_unreadable_timer_is_a_409(self, breakable: tuple[World, Subject]) -> None:
        world, subject = breakable
        (bad,) = put(world, "bad")
        subject.corrupt(bad)
        assert redrive(world, "bad").code == "timer_unreadable"
        assert fire(world, "bad").code == "timer_unreadable"

    @pytest.mark.parametrize("action", [redrive, fire])
    def test_the_body_has_nothing_to_say(self, world: World, action: Any) -> None:
        put(world, "t1")
        assert action(world, "t1", body={"revision": 1}).faults.keys() == {"revision"}
        assert action(world, "t1", body="[]").status == 400
        assert action(world, "t1", body={}).status in (200, 409)


class TestFire:
    def test_a_waiting_timer_is_due_now(self, world: World) -> None:
        put(world, "t1", execute_at=NOW + HOUR)
        world.clock.advance(1)

        answer = fire(world, "t1")

        assert (answer.status, answer.headers["etag"]) == (200, '"2"')
        assert answer.json()["nextAttemptAt"] == format_instant(world.clock.now())
        assert answer.json()["executeAt"] == format_instant(NOW + HOUR)
        assert [stored.timer_id for stored in world.stored] == ["t1"]

    def test_the_attempts_of_a_waiting_retry_count_on(self, world: World) -> None:
        (timer,) = put(world, "t1")
        record(world, retried(timer, next_attempt_at=NOW + HOUR))
        assert fire(world, "t1").json()["attempts"] == 1

    def test_a_timer_that_is_due_is_answered_as_it_is(self, world: World) -> None:
        put(world, "t1")
        before = world.api.read("t1")
        answer = fire(world, "t1")
        assert (answer.status, answer.text, answer.headers["etag"]) == (200, before.text, '"1"')

    def test_what_cannot_be_fired_is_a_409(self, world: World) -> None:
        ended, at_work = put(world, "ended", "at work")
        put_failed(world, "failed")
        record(world, fired(ended), parked(at_work, until=NOW + HOUR))
        for timer_id, code, hint in (
            ("ended", "timer_finished", "replace"),
            ("failed", "timer_finished", "redrive"),
            ("at work", "attempt_in_flight", "in flight"),
        ):
            answer = fire(world, timer_id)
            assert (answer.status, answer.code) == (409, code), timer_id
            assert hint in answer.json()["detail"]

    def test_if_match_is_honoured(self, world: World) -> None:
        put(world, "t1", execute_at=NOW + HOUR)
        assert fire(world, "t1", headers={"if-match": '"2"'}).code == "revision_mismatch"
        assert fire(world, "t1", headers={"if-match": '"1"'}).status == 200


class TestRedriveMany:
    def test_pages_redrive_every_failed_timer_once_with_progress(self, world: World) -> None:
        put_failed(world, *(f"t{number:03}" for number in range(70)))
        put(world, "other", execute_at=NOW + HOUR)
        world.clock.advance(60)
        progress: list[int] = []
        cursor: str | None = None
        for _ in range(100):
            answer = redrive_many(world, {"limit": 30} | ({"cursor": cursor} if cursor else {}))
            body = answer.json()
            assert answer.status == 200
            assert body.keys() == {"redriven", "skipped", "examined", "nextCursor"}
            assert body["examined"] == body["redriven"] + body["skipped"] <= 30
            progress.append(body["redriven"])
            # What fails again behind or before the cursor is not met a second time.
            record(world, *(failed(timer) for timer in world.stored))
            world.stored.clear()
            cursor = body["nextCursor"]
            if cursor is None:
                break
        assert sum(progress) == 70
        assert len(world.api.all_pages(state="Failed")) == 70
        assert world.timer("t000").revision == 4

    def test_without_a_body_all_are_meant(self, world: World) -> None:
        put_failed(world, "a", "b")
        assert redrive_many(world).json() == {"redriven": 2, "skipped": 0, "examined": 2, "nextCursor": None}
        assert scheduled(world) == ["a", "b"]
        assert redrive_many(world, {}).json()["examined"] == 0

    @pytest.mark.parametrize(
        ("body", "expected"),
        [
            ({"reason": "Timeout"}, ["early", "late"]),
            ({"reason": "Network"}, ["refused"]),
            ({"reason": "NotOk"}, []),
            ({"tag": "red"}, ["late", "refused"]),
            ({"tag": "red", "reason": "Timeout"}, ["late"]),
            ({"correlationId": "c1"}, ["late"]),
            ({"correlationId": "c1", "reason": "Network"}, []),
            ({"dueFrom": "2026-12-20T15:30:01Z"}, ["late"]),
            ({"dueTo": "2026-12-20T15:30:01Z"}, ["early", "refused"]),
            ({"failedFrom": "2026-12-20T15:30:30Z"}, ["refused"]),
            ({"failedTo": "2026-12-20T15:30:30Z"}, ["early", "late"]),
            ({"failedFrom": "2026-12-20T15:30:30+01:00", "dueFrom": None}, ["early", "late", "refused"]),
        ],
    )
    def test_all_filters_must_hold(self, world: World, body: dict[str, Any], expected: list[str]) -> None:
        put_failed(world, "early")
        put_failed(world, "late", execute_at=NOW + timedelta(seconds=1), tags=("red",), correlation_id="c1")
        world.clock.advance(30)
        put_failed(world, "refused", reason=FailureReason.NETWORK, tags=("red",))
        world.clock.advance(30)

        answer = redrive_many(world, body)

        assert answer.json()["redriven"] == len(expected)
        assert scheduled(world) == expected
        assert sorted(timer.timer_id for timer in world.stored) == expected

    def test_a_dry_run_counts_and_changes_nothing(self, world: World) -> None:
        put_failed(world, "a", "b", "c")
        found, cursor = 0, None
        while True:
            page = redrive_many(world, {"dryRun": True, "limit": 2, "cursor": cursor}).json()
            found, cursor = found + page["redriven"], page["nextCursor"]
            if cursor is None:
                break
        assert found == 3
        assert scheduled(world) == []
        assert world.stored == []

    def test_a_list_finds_them_by_when_they_failed(self, world: World) -> None:
        put(world, "waiting")
        put_failed(world, "early")
        world.clock.advance(30)
        put_failed(world, "late")
        query = {"failedFrom": "2026-12-20T15:30:30Z"}
        assert [item["id"] for item in world.api.all_pages(**query)] == ["late"]
        assert [item["id"] for item in world.api.all_pages(failedTo=query["failedFrom"], state="Failed")] == ["early"]
        refused = world.api.list(**query, state="Fired")
        assert (refused.status, refused.json()["errors"][0]["field"]) == (400, "failedFrom")

    def test_unreadable_timers_are_skipped(self, breakable: tuple[World, Subject]) -> None:
        world, subject = breakable
        (bad,) = put(world, "bad")
        subject.corrupt(bad)
        rows = world.store.timers.due(bad.shard_id, until=NOW, limit=5).unreadable
        world.store.timers.quarantine(rows, now=NOW, expires_at=NOW + HOUR)
        put_failed(world, "good")

        assert [item["id"] for item in world.api.all_pages(state="Failed", reason="Unreadable")] == ["bad"]
        assert redrive_many(world).json() == {"redriven": 1, "skipped": 1, "examined": 2, "nextCursor": None}
        assert scheduled(world) == ["good"]

    @pytest.mark.parametrize(
        ("body", "field"),
        [
            ({"reason": "bad luck"}, "reason"),
            ({"colour": "red"}, "colour"),
            ({"limit": 0}, "limit"),
            ({"limit": 501}, "limit"),
            ({"limit": "9"}, "limit"),
            ({"dueFrom": "today"}, "dueFrom"),
            ({"failedTo": 7}, "failedTo"),
            ({"tag": ""}, "tag"),
            ({"cursor": "x"}, "cursor"),
            ({"ids": "t1"}, "ids"),
            ({"ids": ["t1", 2]}, "ids[1]"),
            ({"ids": ["t"] * 501}, "ids"),
            ({"ids": ["t1"], "tag": "red"}, "tag"),
            ({"ids": [], "limit": 5}, "limit"),
        ],
    )
    def test_a_faulty_body_is_named_and_redrives_nothing(
        self, world: World, body: dict[str, Any], field: str
    ) -> None:
        put_failed(world, "t1")
        answer = redrive_many(world, body)
        assert answer.status == 400
        assert answer.faults.keys() == {field}
        assert scheduled(world) == []

    def test_a_cursor_belongs_to_its_filters(self, world: World) -> None:
        put_failed(world, "a", "b", "c", "d", tags=("red",))
        cursor = redrive_many(world, {"limit": 1, "tag": "red"}).json()["nextCursor"]
        assert redrive_many(world, {"cursor": cursor}).code == "invalid_cursor"
        assert redrive_many(world, {"cursor": cursor, "tag": "blue"}).code == "invalid_cursor"
        assert world.api.list(cursor=cursor, tag="red").code == "invalid_cursor"
        assert redrive_many(world, {"cursor": cursor, "tag": "red", "limit": 500}).json()["redriven"] == 3


class TestRedriveByIds:
    def test_each_has_a_result_in_order(self, world: World) -> None:
        put_failed(world, "a", "b", "c")
        put(world, "waiting")

        answer = redrive_many(world, {"ids": ["b", "waiting", "none", "a/b", "b", "a"]})

        body = answer.json()
        items = [(item["id"], item["status"], item.get("problem", {}).get("code")) for item in body.pop("items")]
        assert items == [
            ("b", 200, None),
            ("waiting", 409, "timer_not_failed"),
            ("none", 404, "timer_not_found"),
            ("a/b", 400, "invalid_input"),
            ("b", 409, "duplicate_id"),
            ("a", 200, None),
        ]
        assert body == {"redriven": 2, "skipped": 4, "examined": 6, "nextCursor": None}
        assert scheduled(world) == ["a", "b", "waiting"]
        assert sorted(timer.timer_id for timer in world.stored) == ["a", "b"]

    def test_hundreds(self, world: World) -> None:
        ids = [timer.timer_id for timer in make_timers(world.namespace, 120)]
        put_failed(world, *ids)
        assert redrive_many(world, {"ids": ids}).json()["redriven"] == 120
        assert redrive_many(world, {"ids": []}).json()["items"] == []

    def test_what_takes_too_long_is_left_to_another_request(self) -> None:
        class SlowClock(FakeClock):
            def monotonic(self) -> float:
                self.advance(BUDGET_SECONDS)
                return super().monotonic()

        with memory_store() as store:
            world = world_over(store)
            ids = [timer.timer_id for timer in make_timers(world.namespace, 3 * AT_ONCE)]
            put_failed(world, *ids)
            slow = Api(build_handler(context_for(store, SlowClock(), [])))

            body = slow.call("POST", "/v1/namespaces/default/redrive", {"ids": ids}).json()

        statuses = [item["status"] for item in body["items"]]
        assert statuses == [200] * AT_ONCE + [503] * 2 * AT_ONCE
        assert body["redriven"] == AT_ONCE
        assert body["items"][-1]["problem"]["code"] == "store_unavailable"
