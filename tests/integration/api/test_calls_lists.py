"""Lists of service calls, with each filter and with all of them, page by page against a model; executions; events."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from duetime.api.http.page_size import MAX_PAGE_CHARACTERS
from duetime.api.service_calls.requests import CallQuery
from duetime.domain.executions import LoggedMessage
from duetime.domain.times import MAX_INSTANT, format_instant
from duetime.stores.port.calls import ApplyStatus
from duetime.testing.contract import call_builders as make
from duetime.testing.contract.builders import seconds
from tests.support.call_api import LIFE, OTHER, TENANT, URL, CallWorld, call_world
from tests.support.clock import NOW
from tests.support.http import Answer

STATUSES = ["Scheduled", "Running", "Succeeded", "Failed"]


def ask(calls: CallWorld, query: str | Mapping[str, Any] = "", *, tenant: str = TENANT, path: str = "") -> Answer:
    """``query`` as a string, or its parameters, of which lists are repeated."""
    return calls.api.get(path or calls.path(tenant=tenant), query=query)


def all_ids(calls: CallWorld, query: Mapping[str, Any], *, tenant: str = TENANT, limit: int = 50) -> list[str]:
    ids: list[str] = []
    more: dict[str, Any] = {}
    for _ in range(1000):
        answer = ask(calls, {**query, "limit": limit, **more}, tenant=tenant)
        assert answer.status == 200, answer
        page = answer.json()
        assert len(page["items"]) <= limit
        ids += [item["id"] for item in page["items"]]
        if page["nextCursor"] is None:
            return ids
        more = {"cursor": page["nextCursor"]}
    raise AssertionError("the list has no end")


def advance_to(calls: CallWorld, call_id: str, status: str) -> None:
    if status != "Scheduled":
        calls.begin(call_id)
    if status in ("Succeeded", "Failed"):
        calls.finish(call_id, is_ok=status == "Succeeded")


def test_a_list_is_the_newest_first_without_bodies(calls: CallWorld) -> None:
    ids = []
    for number in range(3):
        ids.append(calls.submitted(name=f"n{number}", request={"method": "PUT", "url": URL, "body": "x" * 50})["id"])
        calls.clock.advance(1)
    answer = ask(calls)
    items = answer.json()["items"]
    assert [item["id"] for item in items] == ids[::-1]
    assert items[0]["request"] == {"method": "PUT", "url": URL, "target": None, "headers": None, "bodyBytes": 52}
    assert "xxx" not in answer.text
    whole = calls.api.get(calls.path(ids[2])).json()
    del whole["request"]["body"]
    assert items[0] == whole


def test_an_empty_tenant_has_an_empty_list(calls: CallWorld) -> None:
    assert ask(calls).json() == {"items": [], "nextCursor": None}


def test_secrets_are_not_in_lists_either(calls: CallWorld) -> None:
    calls.submitted(request={"method": "GET", "url": URL, "headers": {"authorization": "s3cret"}})
    answer = ask(calls)
    assert answer.json()["items"][0]["request"]["headers"] == {"authorization": "[redacted]"}
    assert "s3cret" not in answer.text


def test_what_comes_next(calls: CallWorld) -> None:
    due = {}
    for delay in (50, 10, 30, 40, 20):
        due[delay] = calls.submitted(delay=delay)["id"]
    advance_to(calls, calls.submitted(delay=15)["id"], "Running")
    query = {"order": "dueAt", "status": "Scheduled"}
    assert all_ids(calls, query, limit=2) == [due[delay] for delay in (10, 20, 30, 40, 50)]
    due_to = format_instant(NOW + seconds(30))
    assert all_ids(calls, {**query, "dueTo": due_to}) == [due[delay] for delay in (10, 20)]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("status=waiting", "status"),
        ("tag=", "tag[0]"),
        ("tag=a&tag=", "tag[1]"),
        ("tag=a&tag=a", "tag"),
        ("&".join(f"tag={number}" for number in range(21)), "tag"),
        ("createdFrom=yesterday", "createdFrom"),
        ("createdTo=2026-12-20", "createdTo"),
        ("dueTo=1", "dueTo"),
        ("dueTo=2026-12-20T00:00:00Z", "dueTo"),
        ("dueTo=2026-12-20T00:00:00Z&status=Scheduled", "dueTo"),
        ("order=dueAt", "order"),
        ("order=dueAt&status=Running", "order"),
        ("order=name", "order"),
        ("name=", "name"),
        ("name=" + "x" * 201, "name"),
        ("starred=1", "starred"),
        ("starred=True", "starred"),
        ("starred=", "starred"),
        ("starred=true&starred=true", "starred"),
        ("correlationId=", "correlationId"),
        ("limit=0", "limit"),
        ("limit=501", "limit"),
        ("limit=x", "limit"),
        ("limit=1_0", "limit"),
        ("limit=%2B5", "limit"),
        ("limit=5.0", "limit"),
        ("limit=" + "9" * 5000, "limit"),
        ("cursor=x", "cursor"),
        ("submittedFrom=2026-12-20T00:00:00Z", "submittedFrom"),
        ("tags=a", "tags"),
    ],
)
def test_a_bad_query_names_its_parameter(calls: CallWorld, query: str, field: str) -> None:
    answer = ask(calls, query)
    assert (answer.status, list(answer.faults)) == (400, [field])


def test_the_plus_of_an_offset_may_be_forgotten(calls: CallWorld) -> None:
    calls.submitted()
    assert len(ask(calls, "createdFrom=2026-12-20T16:30:00+01:00").json()["items"]) == 1
    assert ask(calls, "createdTo=2026-12-20T16:30:00+01:00").json()["items"] == []


def test_a_cursor_belongs_to_its_list(calls: CallWorld) -> None:
    for tenant in (TENANT, OTHER):
        for number in range(3):
            calls.submitted(tenant=tenant, tags=["a", "b"], name=f"n{number}")
    query = {"tag": ["a", "b"], "limit": 1}
    cursor = ask(calls, query).json()["nextCursor"]
    good: dict[str, Any] = {**query, "cursor": cursor}
    assert ask(calls, good).status == 200
    assert ask(calls, {**good, "limit": 2}).status == 200
    assert ask(calls, {**good, "tag": ["b", "a"]}).status == 200
    changes: list[dict[str, Any]] = [
        {"tag": ["a"]},
        {"status": "Scheduled"},
        {"name": "n"},
        {"starred": "false"},
        {"createdFrom": format_instant(NOW)},
        {"createdTo": format_instant(NOW)},
        {"correlationId": "c"},
        {"status": "Scheduled", "order": "dueAt"},
        {"cursor": cursor[:-1]},
        {"cursor": "A" + cursor},
    ]
    for change in changes:
        assert ask(calls, {**good, **change}).code == "invalid_cursor", change
    assert ask(calls, good, tenant=OTHER).code == "invalid_cursor"
    call_id = ask(calls, query).json()["items"][0]["id"]
    assert ask(calls, {"cursor": cursor}, path=calls.path(call_id, "executions")).code == "invalid_cursor"


def test_a_page_that_is_too_big_is_cut(calls: CallWorld) -> None:
    headers = {f"h{number}": "x" * 255 for number in range(31)}
    ids = [
        calls.submitted(request={"method": "GET", "url": URL, "headers": headers})["id"]
        for _ in range(MAX_PAGE_CHARACTERS // 8000 + 5)
    ]
    page = ask(calls, "limit=500")
    assert len(page.text) <= MAX_PAGE_CHARACTERS + 1000
    assert 1 < len(page.json()["items"]) < len(ids)
    assert sorted(all_ids(calls, {}, limit=500)) == sorted(ids)


# -- against a model -----------------------------------------------------------------------------------------------

TAGS = ["a", "b", "c"]
NAMES = ["", "r", "report", "rep%", "rep_", "Report", "é"]


@st.composite
def submissions(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "tenant": draw(st.sampled_from([TENANT, TENANT, OTHER])),
        "name": draw(st.sampled_from(NAMES)) + draw(st.sampled_from(["1", "2", "%"])),
        "tags": draw(st.lists(st.sampled_from(TAGS), unique=True)),
        "starred": draw(st.booleans()),
        "delay": draw(st.integers(0, 3)),
        "correlationId": draw(st.sampled_from(["c1", "c2"])),
        "status": draw(st.sampled_from(STATUSES)),
        "pause": draw(st.sampled_from([0, 0.001, 1])),
    }


@st.composite
def queries(draw: st.DrawFn) -> dict[str, Any]:
    instants = st.integers(-1, 6).map(lambda number: format_instant(NOW + timedelta(milliseconds=500 * number)))
    query = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "status": st.sampled_from(STATUSES),
                "tag": st.lists(st.sampled_from(TAGS), unique=True, min_size=1),
                "createdFrom": instants,
                "createdTo": instants,
                "name": st.sampled_from(NAMES[1:]),
                "starred": st.sampled_from(["true", "false"]),
                "correlationId": st.sampled_from(["c1", "c2"]),
            },
        )
    )
    if draw(st.integers(0, 3)) == 0:
        query |= {"status": "Scheduled", "order": "dueAt"}
        if draw(st.booleans()):
            query["dueTo"] = draw(instants)
    return query


def fits(call: Mapping[str, Any], query: Mapping[str, Any]) -> bool:
    """What the documentation says of the filters, in a few words."""
    return (
        call["status"] == query.get("status", call["status"])
        and set(query.get("tag", [])) <= set(call["tags"])
        and query.get("createdFrom", "") <= call["createdAt"]
        and call["createdAt"] < query.get("createdTo", "9")
        and call["name"].startswith(query.get("name", ""))
        and json.dumps(call["starred"]) == query.get("starred", json.dumps(call["starred"]))
        and call["correlationId"] == query.get("correlationId", call["correlationId"])
        and call["dueAt"] < query.get("dueTo", "9")
    )


def expected(calls: list[dict[str, Any]], query: Mapping[str, Any]) -> list[str]:
    found = sorted((call for call in calls if fits(call, query)), key=lambda call: call["id"], reverse=True)
    if "order" in query:
        found.sort(key=lambda call: (call["dueAt"], call["id"]))
    elif "name" in query:
        found.sort(key=lambda call: call["name"].encode())
    return [call["id"] for call in found]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    made=st.lists(submissions(), max_size=12),
    asked=st.lists(queries(), min_size=1, max_size=6),
    limit=st.integers(1, 5),
)
def test_every_list_is_that_of_a_model(made: list[dict[str, Any]], asked: list[dict[str, Any]], limit: int) -> None:
    with call_world() as world:
        known: dict[str, list[dict[str, Any]]] = {TENANT: [], OTHER: []}
        for one in made:
            tenant, status, pause = one.pop("tenant"), one.pop("status"), one.pop("pause")
            call_id = world.submitted(tenant=tenant, **one)["id"]
            if status != "Scheduled":
                world.begin(call_id, tenant=tenant)
            if status in ("Succeeded", "Failed"):
                world.finish(call_id, tenant=tenant, is_ok=status == "Succeeded")
            known[tenant].append(world.api.get(world.path(call_id, tenant=tenant)).json())
            world.clock.advance(pause)
        for query in asked:
            for tenant, of_tenant in known.items():
                assert all_ids(world, query, tenant=tenant, limit=limit) == expected(of_tenant, query), query


def test_the_model_knows_every_parameter() -> None:
    known = {
        "status",
        "tag",
        "createdFrom",
        "createdTo",
        "name",
        "starred",
        "correlationId",
        "order",
        "dueTo",
        "limit",
        "cursor",
    }
    assert {field.alias for field in CallQuery.model_fields.values()} == known


# -- executions ----------------------------------------------------------------------------------------------------


def test_executions_are_listed_the_newest_first_without_bodies(calls: CallWorld) -> None:
    call_id = calls.submitted(retryPolicy={"maxAttempts": 3, "initialInterval": "1s"})["id"]
    for _ in range(2):
        calls.finish(call_id, is_ok=False)
        calls.clock.advance(60)
    calls.begin(call_id)
    path = calls.path(call_id, "executions")
    answer = ask(calls, "limit=2", path=path)
    first = answer.json()["items"]
    rest = ask(calls, {"limit": 2, "cursor": answer.json()["nextCursor"]}, path=path).json()
    assert [one["number"] for one in [*first, *rest["items"]]] == [3, 2, 1]
    assert rest["nextCursor"] is None
    running, failed = first
    assert (running["status"], running["finishedAt"], running["response"]) == ("Running", None, None)
    assert running["deadlineAt"] == format_instant(NOW + seconds(120 + 35))
    assert (failed["status"], failed["reason"], failed["response"]["status"]) == ("Failed", "HttpStatus", 503)
    assert "héllo" not in json.dumps(answer.json(), ensure_ascii=False)
    assert ask(calls, "limit=x", path=path).status == 400


def test_an_execution_has_what_was_sent_and_what_came_back(calls: CallWorld) -> None:
    call_id = calls.submitted()["id"]
    execution_id = calls.begin(call_id).execution_id or ""
    calls.clock.advance(1)
    calls.finish(call_id)
    execution = calls.api.get(calls.path(call_id, "executions", execution_id)).json()
    assert execution == {
        "id": execution_id,
        "serviceCallId": call_id,
        "tenantId": TENANT,
        "number": 1,
        "status": "Succeeded",
        "startedAt": format_instant(NOW),
        "finishedAt": format_instant(NOW + seconds(1)),
        "durationMs": 12,
        "deadlineAt": format_instant(NOW + seconds(35)),
        "request": {
            "method": "GET",
            "url": URL,
            "headers": [{"name": "accept", "value": "*/*"}, {"name": "authorization", "value": "[redacted]"}],
            "bodyBytes": 7,
            "bodyTruncated": False,
            "bodyIsBase64": False,
            "body": '{"a":1}',
        },
        "response": {
            "status": 200,
            "headers": [{"name": "content-type", "value": "text/plain"}],
            "bodyBytes": 6,
            "bodyTruncated": True,
            "bodyIsBase64": False,
            "body": "héllo",
        },
        "reason": None,
        "message": None,
    }


def test_an_execution_shows_no_more_of_what_was_given_than_its_call(calls: CallWorld) -> None:
    """Whatever the log is configured to keep."""
    headers = {"X-Own-Key": "s3cret", "Authorization": "s3cret", "Idempotency-Key": "k", "Accept": "text/csv"}
    call = calls.call(calls.submitted(request={"method": "GET", "url": URL, "headers": headers})["id"])
    begin = make.begun(call)
    execution = replace(begin.executions[0], request=LoggedMessage(headers=tuple(headers.items())))
    assert calls.calls.apply([replace(begin, executions=(execution,))], now=NOW) == [ApplyStatus.APPLIED]
    shown = headers | {"X-Own-Key": "[redacted]", "Authorization": "[redacted]"}
    assert calls.api.get(calls.path(call.call_id)).json()["request"]["headers"] == shown
    whole = calls.api.get(calls.path(call.call_id, "executions", execution.execution_id)).json()
    (listed,) = calls.api.get(calls.path(call.call_id, "executions")).json()["items"]
    for each in (whole, listed):
        assert {header["name"]: header["value"] for header in each["request"]["headers"]} == shown


def test_an_execution_belongs_to_its_call(calls: CallWorld) -> None:
    one, two = calls.submitted()["id"], calls.submitted()["id"]
    execution_id = calls.begin(one).execution_id or ""
    assert calls.api.get(calls.path(two, "executions", execution_id)).code == "execution_not_found"
    for wrong in ("x", "..", "x" * 3000, "01234567-89ab-7def-8123-456789abcdef"):
        answer = calls.api.get(calls.path(one, "executions", wrong))
        assert (answer.status, answer.code) in {(404, "execution_not_found"), (404, "route_not_found")}


def test_a_call_that_was_not_executed_has_no_executions(calls: CallWorld) -> None:
    path = calls.path(calls.submitted()["id"], "executions")
    assert calls.api.get(path).json() == {"items": [], "nextCursor": None}


# -- events --------------------------------------------------------------------------------------------------------


def test_events_are_read_in_order_from_where_one_was(calls: CallWorld) -> None:
    call = calls.submitted(correlationId="c")
    path = calls.path(call["id"], "events")
    first = ask(calls, "limit=1", path=path).json()
    assert (first["nextAfter"], first["complete"]) == (1, False)
    (event,) = first["items"]
    assert event == {
        "id": event["id"],
        "type": "ServiceCallSubmitted",
        "tenantId": TENANT,
        "aggregateId": call["id"],
        "sequence": 1,
        "occurredAt": format_instant(NOW),
        "correlationId": "c",
        "causationId": None,
        "payload": {"name": "report", "method": "GET", "url": URL, "tags": [], "rerunOf": None},
    }
    assert ask(calls, "after=2", path=path).json() == {"items": [], "nextAfter": 2, "complete": False}
    calls.finish(call["id"])
    after, types = 0, []
    while True:
        page = ask(calls, {"after": after, "limit": 3}, path=path).json()
        types += [event["type"] for event in page["items"]]
        after = page["nextAfter"]
        if page["complete"]:
            break
    assert types == LIFE
    assert ask(calls, "after=7", path=path).json() == {"items": [], "nextAfter": 7, "complete": True}


def test_events_that_are_not_kept_any_more_are_not_waited_for(calls: CallWorld) -> None:
    call_id = calls.submitted()["id"]
    calls.finish(call_id)
    published = calls.store.outbox.unpublished(limit=100)
    calls.store.outbox.mark_published(published[:5], now=NOW)
    assert calls.calls.prune(now=NOW, events_published_before=MAX_INSTANT, limit=100) == 5
    path = calls.path(call_id, "events")
    page = ask(calls, "", path=path).json()
    assert ([event["sequence"] for event in page["items"]], page["complete"]) == ([6, 7], True)
    calls.store.outbox.mark_published(published[5:], now=NOW)
    assert calls.calls.prune(now=NOW, events_published_before=MAX_INSTANT, limit=100) == 2
    assert ask(calls, "", path=path).json() == {"items": [], "nextAfter": 0, "complete": True}


def test_last_event_id_counts_for_after(calls: CallWorld) -> None:
    path = calls.path(calls.submitted()["id"], "events")
    answer = calls.api.get(path, query={"after": "0"}, headers={"last-event-id": "1"})
    assert [event["sequence"] for event in answer.json()["items"]] == [2]
    assert list(calls.api.get(path, headers={"last-event-id": "a"}).faults) == ["Last-Event-ID"]


@pytest.mark.parametrize("query", ["after=-1", "after=1.0", "after=", "after=" + "9" * 16, "after=٣"])
def test_an_after_that_is_no_sequence_is_refused(calls: CallWorld, query: str) -> None:
    path = calls.path(calls.submitted()["id"], "events")
    assert list(ask(calls, query, path=path).faults) == ["after"]
    assert list(ask(calls, "limit=501", path=path).faults) == ["limit"]


def test_a_lambda_answers_json_whatever_is_accepted(calls: CallWorld) -> None:
    path = calls.path(calls.submitted()["id"], "events")
    answer = calls.api.get(path, headers={"accept": "text/event-stream"})
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
