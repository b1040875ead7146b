from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from duetime.api.http import errors as http_errors
from duetime.api.http.errors import FieldError, InvalidFields, MethodNotAllowed
from duetime.api.http.problems import MAX_FIELD_ERRORS, Problem, problem_reply, status_of
from duetime.domain import errors
from duetime.domain.errors import (
    DuetimeError,
    InvalidInput,
    PayloadTooLarge,
    StoreError,
    StoreNotReady,
    StoreUnavailable,
)


def subclasses(kind: type[DuetimeError]) -> set[type[DuetimeError]]:
    return {kind}.union(*(subclasses(each) for each in kind.__subclasses__()))


def known_errors() -> set[type[DuetimeError]]:
    """Those of the domain and of the API; other layers have errors that never reach a client."""
    modules = (errors.__name__, http_errors.__name__)
    return {kind for kind in subclasses(DuetimeError) if kind.__module__ in modules}


def test_every_error_of_the_house_has_its_status() -> None:
    """Tests of the API see those of the others."""
    statuses = {kind: status_of(kind.__new__(kind)) for kind in known_errors()}
    internal = {errors.StoreError, errors.InvalidSettings, errors.DuetimeError}
    assert {kind for kind, status in statuses.items() if status == 500} == internal
    rare = {
        errors.AttemptInFlight: 409,
        errors.TimerUnreadable: 409,
        http_errors.AdvanceUnfinished: 503,
        http_errors.CrossSiteRequest: 403,
        http_errors.TenantNotFound: 404,
    }
    assert rare.items() <= statuses.items()


def test_codes_are_unique_to_what_a_client_may_see() -> None:
    codes = [kind.code for kind in known_errors() if "code" in vars(kind)]
    assert len(codes) == len(set(codes))


def test_every_code_is_documented() -> None:
    document = (Path(__file__).parents[3] / "docs/api.md").read_text()
    internal = {errors.DuetimeError.code, errors.InvalidSettings.code}
    for kind in known_errors():
        assert kind.code in internal or f"`{kind.code}`" in document, kind


def test_a_problem_has_all_its_members() -> None:
    reply = problem_reply(InvalidInput("tags[3]", "must be short"), request_id="r1")
    assert reply.content_type == "application/problem+json"
    assert json.loads(reply.body) == {
        "type": "urn:duetime:problem:invalid_input",
        "title": "Invalid request",
        "status": 400,
        "detail": "tags[3]: must be short",
        "code": "invalid_input",
        "errors": [{"field": "tags[3]", "message": "must be short"}],
        "requestId": "r1",
    }


@pytest.mark.parametrize("error", [ValueError("password=hunter2"), StoreError("table hunter2"), KeyError("hunter2")])
def test_the_inside_stays_inside(error: Exception) -> None:
    reply = problem_reply(error, request_id="r1")
    assert reply.status == 500
    assert "hunter2" not in reply.body


def test_headers_say_what_to_do_next() -> None:
    assert problem_reply(MethodNotAllowed("no", allowed=["GET", "PUT"]), request_id="r").headers == {
        "allow": "GET, PUT"
    }
    soon = problem_reply(StoreUnavailable("busy", retry_after_seconds=0.2), request_id="r")
    late = problem_reply(StoreUnavailable("busy", retry_after_seconds=6.1), request_id="r")
    assert [soon.headers["retry-after"], late.headers["retry-after"]] == ["1", "7"]
    assert problem_reply(StoreNotReady("no tables"), request_id="r").headers["retry-after"] == "5"
    assert problem_reply(PayloadTooLarge("", "big"), request_id="r").headers == {}


def test_the_number_of_faults_shown_is_bounded() -> None:
    error = InvalidFields([FieldError(f"f{number}", "is odd") for number in range(1000)])
    assert len(json.loads(problem_reply(error, request_id="r").body)["errors"]) == MAX_FIELD_ERRORS


def test_a_field_without_utf8_can_be_answered() -> None:
    body = problem_reply(InvalidInput("a\ud800", "is odd"), request_id="r").body
    assert body.isascii()
    msgspec.json.decode(body.replace("\\ud800", "?"), type=Problem)
