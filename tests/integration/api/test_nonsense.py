"""Whatever a client sends, it is told what is wrong with it; nothing breaks."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from duetime.api.routes import all_routes, call_routes
from duetime.api.service_calls.requests import CallQuery, EventQuery, RerunBody, ServiceCallBody, ServiceCallPatch
from duetime.api.timers.requests import TimerBody, TimerPatch, TimerQuery
from tests.support.api import World
from tests.support.call_api import URL, CallWorld
from tests.support.json_text import json_texts

ANY_TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=12)
SEGMENTS = st.one_of(st.sampled_from(["default", "t1", "batch", "..", "base64url:dDE"]), ANY_TEXT.filter(bool))
PATHS = st.one_of(
    st.sampled_from([route.path for route in all_routes()]), ANY_TEXT.map(lambda text: f"/{quote(text)}")
)
NAMES = sorted({field.alias or "" for model in (TimerBody, TimerPatch) for field in model.model_fields.values()})
PARAMETERS = sorted(field.alias or "" for field in TimerQuery.model_fields.values())
VALUES = st.one_of(
    json_texts(),
    st.sampled_from(
        ['"2026-12-20T15:30:00Z"', '"http://receiver.test/"', "5", '"t1"', "[]", '{"maxAttempts":2}', "[{}]"]
    ),
)


def as_object(members: dict[str, str]) -> str:
    return f"{{{','.join(f'{json.dumps(name)}:{value}' for name, value in members.items())}}}"


OBJECTS = st.dictionaries(st.one_of(st.sampled_from(NAMES), ANY_TEXT), VALUES, max_size=6).map(as_object)
BODIES = st.one_of(
    OBJECTS,
    st.lists(st.one_of(OBJECTS, VALUES), max_size=4).map(lambda items: f'{{"timers":[{",".join(items)}]}}'),
    VALUES,
    st.binary(max_size=20),
)
CONDITIONS = st.one_of(st.sampled_from(["*", '"1"', 'W/"1"', '"1","2"']), st.text(alphabet='"W/*,1 ', max_size=8))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    method=st.sampled_from(["GET", "PUT", "POST", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE"]),
    path=PATHS,
    segments=st.tuples(SEGMENTS, SEGMENTS),
    body=BODIES,
    query=st.dictionaries(st.one_of(st.sampled_from(PARAMETERS), ANY_TEXT), ANY_TEXT, max_size=3),
    headers=st.dictionaries(st.sampled_from(["if-match", "if-none-match"]), CONDITIONS, max_size=2),
)
def test_no_request_is_the_services_fault(
    world: World,
    method: str,
    path: str,
    segments: tuple[str, str],
    body: Any,
    query: dict[str, str],
    headers: dict[str, str],
) -> None:
    for name, segment in zip(("<namespace>", "<timer_id>"), segments, strict=True):
        path = path.replace(name, quote(segment, safe=""))
    answer = world.api.call(method, path, body, query=query, headers=headers)
    assert answer.status < 500, answer
    if answer.status >= 400 and method != "HEAD":
        assert answer.code


@pytest.mark.parametrize("size", [10, 100_000])
def test_deep_nesting_is_an_answer_too(world: World, size: int) -> None:
    payload = "[" * size + "]" * size
    answer = world.api.create(f'{{"delay":1,"callbackUrl":"http://receiver.test/","payload":{payload}}}')
    assert answer.status == (201 if size == 10 else 400)


@pytest.mark.parametrize("field", ["headers", "retryPolicy", "payload", "tags"])
def test_nesting_that_one_reader_takes_and_the_next_does_not_is_the_clients_fault(world: World, field: str) -> None:
    """What is left of the stack differs from place to place; every depth around its end is tried."""
    statuses = {
        world.api.create(
            f'{{"delay":1,"callbackUrl":"http://receiver.test/","{field}":{{"a":{"[" * depth}{"]" * depth}}}}}'
        ).status
        for depth in range(500, 1100, 3)
    }
    assert statuses <= {201, 400}


@pytest.mark.parametrize("number", ["9" * 399, "-" + "9" * 399, "9" * 5000, "1e400"])
@pytest.mark.parametrize("field", ["delay", "expireAfter", "timeoutSeconds", "maxInterval", "maxAttempts"])
def test_numbers_beyond_all_others_are_the_clients_fault(world: World, field: str, number: str) -> None:
    given = f'"{field}":{number}' if not field.startswith("max") else f'"retryPolicy":{{"{field}":{number}}}'
    answer = world.api.create(f'{{"callbackUrl":"http://receiver.test/",{given}}}')
    assert answer.status == 400, answer


# -- service calls -------------------------------------------------------------------------------------------------

CALL_PATHS = st.sampled_from([route.path for route in call_routes()])
CALL_NAMES = sorted(
    {
        field.alias or ""
        for model in (ServiceCallBody, ServiceCallPatch, RerunBody)
        for field in model.model_fields.values()
    }
)
CALL_PARAMETERS = sorted(
    {field.alias or "" for model in (CallQuery, EventQuery) for field in model.model_fields.values()}
)
REQUESTS = st.dictionaries(
    st.one_of(st.sampled_from(["method", "url", "headers", "body"]), ANY_TEXT),
    st.one_of(json_texts(), st.sampled_from([f'"{URL}"', '"GET"', '{"a":"b"}', '{"Host":"a"}', '"\\ud800"'])),
    max_size=5,
).map(as_object)
CALL_VALUES = st.one_of(
    VALUES, REQUESTS, st.sampled_from([f'{{"method":"PUT","url":"{URL}"}}', '"1h"', "true", '["a"]', '"report"'])
)
CALL_OBJECTS = st.dictionaries(st.one_of(st.sampled_from(CALL_NAMES), ANY_TEXT), CALL_VALUES, max_size=6)
CALL_HEADERS = st.dictionaries(
    st.sampled_from(["if-match", "if-none-match", "idempotency-key", "x-correlation-id", "last-event-id"]),
    st.one_of(CONDITIONS, st.text(alphabet=st.characters(min_codepoint=32, max_codepoint=255), max_size=8)),
    max_size=3,
)
QUERY_VALUES = st.one_of(
    ANY_TEXT, st.sampled_from(["Scheduled", "dueAt", "true", "1", "2026-12-20T15:30:00Z", "report"])
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    method=st.sampled_from(["GET", "PUT", "POST", "PATCH", "DELETE", "HEAD", "OPTIONS"]),
    path=CALL_PATHS,
    segments=st.tuples(st.one_of(st.just("acme"), ANY_TEXT.filter(bool)), st.integers(0, 3), ANY_TEXT.filter(bool)),
    body=st.one_of(CALL_OBJECTS.map(as_object), BODIES),
    query=st.dictionaries(st.one_of(st.sampled_from(CALL_PARAMETERS), ANY_TEXT), QUERY_VALUES, max_size=3),
    headers=CALL_HEADERS,
)
def test_no_request_about_calls_is_the_services_fault(
    calls: CallWorld,
    method: str,
    path: str,
    segments: tuple[str, int, str],
    body: Any,
    query: dict[str, str],
    headers: dict[str, str],
) -> None:
    tenant, kind, other = segments
    call_id = other if kind == 0 else calls.submitted(delay=60)["id"]
    execution_id = other
    if kind > 1:
        running = calls.begin(call_id)
        execution_id = running.execution_id or other
        if kind > 2:
            calls.finish(call_id)
    parts = {"<tenant>": tenant, "<service_call_id>": call_id, "<execution_id>": execution_id}
    for name, segment in parts.items():
        path = path.replace(name, quote(segment, safe=""))
    answer = calls.api.call(method, path, body, query=query, headers=headers)
    assert answer.status < 500, answer
    if answer.status >= 400 and method != "HEAD":
        assert answer.code


def test_deep_nesting_in_a_request_is_an_answer_too(calls: CallWorld) -> None:
    for size, status in ((10, 202), (100_000, 400)):
        body = "[" * size + "]" * size
        text = f'{{"name":"n","request":{{"method":"PUT","url":"{URL}","body":{body}}}}}'
        assert calls.api.call("POST", calls.path(), text).status == status
