"""Lists of timers, namespaces and shards: filters, pages, cursors."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from duetime.api.http.page_size import MAX_PAGE_CHARACTERS
from duetime.domain.times import format_instant
from duetime.stores.port.timers import PutMode
from duetime.testing.contract.builders import make_timer, make_timers
from duetime.testing.contract.steps import claim_shard
from tests.support.api import World
from tests.support.clock import NOW
from tests.support.http import Api


def ids(items: Sequence[Any]) -> list[str]:
    return sorted(item["id"] for item in items)


def put(world: World, *timer_ids: str, **fields: Any) -> None:
    timers = [make_timer(world.namespace, timer_id, **fields) for timer_id in timer_ids]
    world.store.timers.put(timers, mode=PutMode.CREATE, now=NOW)


class TestTimers:
    def test_an_empty_list(self, api: Api) -> None:
        assert api.list().json() == {"items": [], "nextCursor": None}

    @pytest.mark.parametrize("limit", ["1", "3", "500"])
    def test_pages_hold_every_timer_once(self, world: World, limit: str) -> None:
        timers = make_timers(world.namespace, 17)
        world.store.timers.put(timers, mode=PutMode.CREATE, now=NOW)
        items = world.api.all_pages(limit=limit)
        assert ids(items) == [timer.timer_id for timer in timers]
        assert len(world.api.list(limit="3").json()["items"]) == 3

    def test_an_item_is_what_a_single_read_gives(self, world: World) -> None:
        put(world, "t1", payload_json='{"a":1.0}', headers_json='{"x":"y"}')
        read = world.api.read("t1").text
        assert world.api.list().text == f'{{"items":[{read}],"nextCursor":null}}'

    def test_filters(self, world: World) -> None:
        put(world, "early", execute_at=NOW, tags=("red",))
        put(world, "late", execute_at=NOW + timedelta(hours=1), tags=("red", "blue"), correlation_id="c1")
        put(world, "latest", execute_at=NOW + timedelta(hours=2), correlation_id="c1")
        one_hour = format_instant(NOW + timedelta(hours=1))
        expected: dict[tuple[tuple[str, str], ...], list[str]] = {
            (("tag", "red"),): ["early", "late"],
            (("tag", "green"),): [],
            (("state", "scheduled"),): ["early", "late", "latest"],
            (("state", "Scheduled"),): ["early", "late", "latest"],
            (("state", "FIRED"),): [],
            (("failedFrom", one_hour),): [],
            (("dueFrom", one_hour),): ["late", "latest"],
            (("dueTo", one_hour),): ["early"],
            (("dueFrom", one_hour), ("dueTo", one_hour)): [],
            (("correlationId", "c1"),): ["late", "latest"],
            (("correlationId", "c2"),): [],
            (("correlationId", "c1"), ("tag", "blue")): ["late"],
            (("correlationId", "c1"), ("state", "Failed")): [],
            (("correlationId", "c1"), ("dueFrom", one_hour), ("dueTo", one_hour)): [],
            (("correlationId", "c1"), ("dueTo", format_instant(NOW + timedelta(hours=2)))): ["late"],
        }
        for query, found in expected.items():
            assert ids(world.api.all_pages(**dict(query))) == found, query

    @pytest.mark.parametrize("query", [{}, {"correlationId": "c1"}, {"tag": "red"}])
    def test_a_page_that_is_too_big_is_cut_and_nothing_is_lost(self, world: World, query: dict[str, str]) -> None:
        payload = f'"{"x" * 250_000}"'
        timer_ids = [f"t{number:02}" for number in range(25)]
        put(world, *timer_ids, payload_json=payload, correlation_id="c1", tags=("red",))
        first = world.api.list(limit="500", **query)
        assert 1 <= len(first.json()["items"]) < 25
        assert len(first.text) <= MAX_PAGE_CHARACTERS + 1000
        assert ids(world.api.all_pages(limit="500", **query)) == timer_ids

    @pytest.mark.parametrize(
        ("query", "field"),
        [
            *((query, "state") for query in ("state=gone", "state=", "state=failed&state=fired")),
            ("colour=red", "colour"),
            ("tag=", "tag"),
            ("dueFrom=today", "dueFrom"),
            ("dueTo=x", "dueTo"),
            *((f"limit={limit}", "limit") for limit in ("0", "501", "x", "1e2")),
            *((f"cursor={cursor}", "cursor") for cursor in ("", "x" * 8193)),
            ("correlationId=" + "x" * 256, "correlationId"),
        ],
    )
    def test_a_faulty_query_is_named(self, api: Api, query: str, field: str) -> None:
        answer = api.get(api.timers, query=query)
        assert answer.status == 400
        assert answer.faults.keys() == {field}

    def test_the_plus_of_an_offset_may_be_forgotten(self, world: World) -> None:
        put(world, "t1", execute_at=NOW)
        for query, found in (("dueFrom", ["t1"]), ("dueTo", [])):
            answer = world.api.get(world.api.timers, query=f"{query}=2026-12-20T16:30:00+01:00")
            assert ids(answer.json()["items"]) == found

    def test_the_number_of_parameters_is_bounded(self, api: Api) -> None:
        assert "parameters" in api.get(api.timers, query="&".join(f"x{number}=1" for number in range(51))).text

    def test_the_namespace_must_exist(self, api: Api) -> None:
        assert api.list("/v1/namespaces/other/timers").code == "namespace_not_found"


class TestCursors:
    @pytest.fixture
    def cursor(self, world: World) -> str:
        put(world, *(f"t{number}" for number in range(9)), tags=("red",), correlation_id="c1")
        cursor: str = world.api.list(limit="2", tag="red").json()["nextCursor"]
        return cursor

    def test_the_limit_may_change(self, api: Api, cursor: str) -> None:
        rest = api.list(cursor=cursor, limit="500", tag="red").json()
        assert (len(rest["items"]), rest["nextCursor"]) == (7, None)

    @pytest.mark.parametrize(
        "query", [{}, {"tag": "blue"}, {"tag": "red", "state": "Fired"}, {"tag": "red", "correlationId": "c1"}]
    )
    def test_another_query_is_refused(self, api: Api, cursor: str, query: dict[str, str]) -> None:
        answer = api.list(cursor=cursor, **query)
        assert (answer.status, answer.code) == (400, "invalid_cursor")

    def test_another_namespace_is_refused(self, world: World, cursor: str) -> None:
        world.store.catalogue.create_namespace("other", num_shards=4, dedicated=False, now=NOW)
        assert world.api.list("/v1/namespaces/other/timers", cursor=cursor, tag="red").code == "invalid_cursor"

    def test_another_list_is_refused(self, api: Api, cursor: str) -> None:
        for path in ("/v1/namespaces", "/v1/shards"):
            assert api.list(path, cursor=cursor).code == "invalid_cursor"

    def test_tampering_is_refused(self, api: Api, cursor: str) -> None:
        last, first = ("B" if cursor[index] == "A" else "A" for index in (-1, 0))
        for changed in (cursor[:-1] + last, first + cursor[1:], cursor + "A", cursor + "=", cursor[:10], "☃", "x"):
            answer = api.list(cursor=changed, tag="red")
            assert (answer.status, answer.code) == (400, "invalid_cursor"), changed


class TestNamespaces:
    def test_one_is_created_once(self, api: Api) -> None:
        body = {"numShards": 4, "dedicated": False}
        answer = api.call("PUT", "/v1/namespaces/orders", body)
        assert (answer.status, answer.headers["location"]) == (201, "/v1/namespaces/orders")
        expected = {
            "name": "orders",
            "tenantId": "default",
            "revision": 1,
            "numShards": 4,
            "dedicated": False,
            "firstShard": 0,
            "earlierShards": [],
            "createdAt": format_instant(NOW),
            "maxInFlight": None,
            "rateLimit": None,
            "retryPolicy": None,
            "misfire": None,
            "minScheduleInterval": None,
            "state": "Active",
            "pausedAt": None,
            "pauseReason": None,
            "unreadable": None,
        }
        assert answer.json() == expected
        again = api.call("PUT", "/v1/namespaces/orders", body)
        assert (again.status, again.json()) == (200, expected)
        assert api.get("/v1/namespaces/orders").json() == expected

    @pytest.mark.parametrize("body", [{"numShards": 5}, {"dedicated": True}, {"numShards": 4, "dedicated": True}])
    def test_it_never_changes(self, api: Api, body: dict[str, Any]) -> None:
        answer = api.call("PUT", "/v1/namespaces/default", body)
        assert (answer.status, answer.code) == (409, "namespace_conflict")

    @pytest.mark.parametrize("body", [None, {}, {"numShards": None}, {"dedicated": False}, {"numShards": 4}])
    def test_what_is_omitted_is_as_it_is(self, api: Api, body: dict[str, Any] | None) -> None:
        answer = api.call("PUT", "/v1/namespaces/default", body)
        assert (answer.status, answer.json()["numShards"]) == (200, 4)

    def test_a_new_one_has_defaults(self, api: Api) -> None:
        made = api.call("PUT", "/v1/namespaces/orders").json()
        assert (made["numShards"], made["dedicated"]) == (16, False)

    def test_a_dedicated_one_has_shards_of_its_own(self, api: Api) -> None:
        made = [api.call("PUT", f"/v1/namespaces/d{n}", {"numShards": 8, "dedicated": True}).json() for n in range(2)]
        assert made[0]["firstShard"] >= 4096
        assert made[1]["firstShard"] >= made[0]["firstShard"] + 8

    @pytest.mark.parametrize("name", ["UPPER", "-x", "a%20b", "x" * 64, "%C3%A9"])
    def test_a_bad_name_is_refused(self, api: Api, name: str) -> None:
        assert api.call("PUT", f"/v1/namespaces/{name}", {}).faults.keys() == {"namespace"}
        assert api.get(f"/v1/namespaces/{name}").code == "namespace_not_found"

    @pytest.mark.parametrize(
        "body",
        [
            {"numShards": 0},
            {"numShards": 4097},
            {"numShards": "4"},
            {"dedicated": 1},
            {"shards": 4},
            '{"numShards": 4',
        ],
    )
    def test_a_bad_body_is_refused(self, api: Api, body: Any) -> None:
        assert api.call("PUT", "/v1/namespaces/orders", body).status == 400
        assert api.get("/v1/namespaces/orders").status == 404

    def test_they_are_listed_by_name(self, api: Api) -> None:
        for number in range(5):
            api.call("PUT", f"/v1/namespaces/n{number}")
        names = [item["name"] for item in api.all_pages("/v1/namespaces", limit="2")]
        assert names == ["default", "n0", "n1", "n2", "n3", "n4"]

    def test_one_that_was_absent_is_found_once_it_exists(self, api: Api) -> None:
        assert api.get("/v1/namespaces/orders").status == 404
        api.call("PUT", "/v1/namespaces/orders")
        assert api.list("/v1/namespaces/orders/timers").status == 200


class TestShards:
    def test_they_are_listed_with_their_owners(self, world: World) -> None:
        told = '{"processId":7,"serviceVersion":"1.2","host":"here","more":1}'
        claim_shard(world.store, 1, "worker-1", lease_seconds=10, now=NOW, metadata=told)
        items = world.api.all_pages("/v1/shards", limit="3")
        assert [item["shardId"] for item in items] == [0, 1, 2, 3]
        free = {"version": 0, "ownerId": None, "claimedAt": None, "leaseExpiresAt": None, "live": False}
        assert items[0] == free | {"shardId": 0, "owner": None}
        assert items[1] == {
            "shardId": 1,
            "version": 1,
            "ownerId": "worker-1",
            "claimedAt": format_instant(NOW),
            "leaseExpiresAt": format_instant(NOW + timedelta(seconds=10)),
            "live": True,
            "owner": {"processId": 7, "serviceVersion": "1.2", "host": "here"},
        }

    @pytest.mark.parametrize("told", ["{}", "[]", "no json", '{"processId":"7","host":5}'])
    def test_an_owner_that_told_something_else_is_shown_without_it(self, world: World, told: str) -> None:
        claim_shard(world.store, 0, "worker-1", lease_seconds=10, now=NOW, metadata=told)
        shard = world.api.list("/v1/shards").json()["items"][0]
        assert shard["ownerId"] == "worker-1"
        assert shard["owner"] in (None, {"processId": None, "serviceVersion": None, "host": None})

    def test_a_lease_that_has_run_out_is_not_live(self, world: World) -> None:
        claim_shard(world.store, 0, "worker-1", lease_seconds=10, now=NOW)
        world.clock.advance(10)
        shard = world.api.list("/v1/shards").json()["items"][0]
        assert (shard["live"], shard["ownerId"]) == (False, "worker-1")

    def test_dedicated_shards_come_after_the_shared_ones(self, api: Api) -> None:
        first = api.call("PUT", "/v1/namespaces/own", {"numShards": 2, "dedicated": True}).json()["firstShard"]
        items = api.all_pages("/v1/shards", limit="1")
        assert [item["shardId"] for item in items] == [0, 1, 2, 3, first, first + 1]
