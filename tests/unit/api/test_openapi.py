"""The document is made of the models that requests are read with; these tests are about what it says."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from duetime.api.documents.openapi import openapi_document
from duetime.api.documents.page import render
from duetime.api.documents.webhooks import ScheduleCallback, TimerCallback
from duetime.api.http.request_models import RequestModel
from duetime.api.namespaces.requests import NamespaceBody
from duetime.api.routes import all_routes
from duetime.api.timers.requests import TimerBody, TimerPatch, TimerQuery
from duetime.delivery.request import callback_for
from duetime.domain.times import format_instant
from duetime.testing.contract.builders import make_namespace, make_timer
from duetime.testing.contract.schedules import make_schedule
from tests.support.clock import NOW


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return openapi_document(all_routes())


def references(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if "$ref" in value else []
        return own + [found for each in value.values() for found in references(each)]
    return [found for each in value for found in references(each)] if isinstance(value, list) else []


def test_every_operation_has_a_name_of_its_own() -> None:
    assert len({route.operation_id for route in all_routes()}) == len(all_routes())


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    found = references(document)
    assert found
    for reference in found:
        _, components, kind, name = reference.split("/")
        assert name in document[components][kind]


def test_path_parameters_are_those_of_the_path(document: dict[str, Any]) -> None:
    for path, methods in document["paths"].items():
        for operation in methods.values():
            named = [one["name"] for one in operation["parameters"] if one["in"] == "path"]
            assert path.count("{") == len(named)
            assert all(f"{{{name}}}" in path for name in named)


@pytest.mark.parametrize("model", [TimerBody, TimerPatch, NamespaceBody])
def test_a_body_has_the_fields_of_its_model(document: dict[str, Any], model: type[RequestModel]) -> None:
    schema = document["components"]["schemas"][model.__name__]
    assert list(schema["properties"]) == [field.alias for field in model.model_fields.values()]
    assert schema["additionalProperties"] is False
    assert schema.get("required", []) == []  # of some members one is needed, which the schema has as a rule


def test_a_body_may_be_left_out_where_all_of_it_may() -> None:
    for route in all_routes():
        if route.method == "POST" and route.body is not None:
            says_something = {"required", "not"} & route.body.model_json_schema().keys()
            assert says_something or not route.body_is_required, route.operation_id


def test_a_list_has_the_parameters_of_its_model(document: dict[str, Any]) -> None:
    parameters = document["paths"]["/v1/namespaces/{namespace}/timers"]["get"]["parameters"]
    by_name = {one["name"]: one["schema"] for one in parameters if one["in"] == "query"}
    assert set(by_name) == {field.alias for field in TimerQuery.model_fields.values()}
    assert by_name["state"]["enum"] == ["Scheduled", "Firing", "Waiting", "Fired", "Failed", "Cancelled"]
    assert by_name["limit"]["maximum"] == 500
    assert by_name["dueFrom"]["format"] == "date-time"


def test_everything_says_what_it_means_and_shows_an_example(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    members = {
        (name, member): schema for name in schemas for member, schema in schemas[name].get("properties", {}).items()
    }
    operations = [operation for methods in document["paths"].values() for operation in methods.values()]
    parameters = [parameter for operation in operations for parameter in operation["parameters"]]
    assert [one for one in (*operations, *parameters) if not one.get("description")] == []
    assert [name for name, schema in members.items() if not schema.get("description")] == []
    speak = ('"examples"', '"enum"', '"$ref"', '"boolean"', '"const"')
    shown = {name: any(word in json.dumps(schema) for word in speak) for name, schema in members.items()}
    assert [name for name, is_shown in shown.items() if not is_shown and "examples" not in schemas[name[0]]] == []


def test_optional_members_of_requests_have_no_default(document: dict[str, Any]) -> None:
    """Generators of types make a member with a default a required one."""
    for schema in document["components"]["schemas"].values():
        assert [name for name, member in schema.get("properties", {}).items() if "default" in member] == []


def test_responses_have_their_headers(document: dict[str, Any]) -> None:
    created = document["paths"]["/v1/namespaces/{namespace}/timers"]["post"]["responses"]
    assert {"ETag", "Location", "X-Request-Id"} <= set(created["201"]["headers"])
    assert "WWW-Authenticate" in created["401"]["headers"]
    assert "Retry-After" in created["409"]["headers"]


def test_the_callback_of_a_schedule_is_the_one_that_is_sent() -> None:
    sent = callback_for(make_schedule(make_namespace(), "é"), key=1, fired_at=NOW)

    found = msgspec.json.decode(sent.body or b"", type=ScheduleCallback)

    assert (found.schedule_id, found.occurrence, found.scheduled_at) == ("é", 1, format_instant(NOW))


def test_the_callback_is_the_one_that_is_sent(document: dict[str, Any]) -> None:
    now = datetime(2026, 12, 20, tzinfo=UTC)
    sent = callback_for(make_timer(make_namespace()), key=1, fired_at=now)
    msgspec.json.decode(sent.body or b"", type=TimerCallback)
    described = document["webhooks"]["timerDue"]["post"]["parameters"]
    names = {line.partition(":")[0].lower() for line in sent.headers}
    assert {one["name"] for one in described if one.get("required")} <= names


def test_it_is_plain_json(document: dict[str, Any]) -> None:
    assert json.loads(json.dumps(document)) == document
    assert document["openapi"] == "3.1.0"


def test_the_page_shows_every_operation_and_fetches_nothing(document: dict[str, Any]) -> None:
    page = render(document)
    assert all(f'id="{operation_id}"' in page for operation_id in (route.operation_id for route in all_routes()))
    assert all(f'id="schema-{name}"' in page for name in document["components"]["schemas"])
    assert not any(word in page for word in ("<script", "src=", "@import", "url(", "<link"))


def test_the_page_escapes_what_it_shows(document: dict[str, Any]) -> None:
    page = render(document | {"info": document["info"] | {"description": "<img onerror=x>"}})
    assert "<img" not in page


OF_ONE_KIND = {
    # What the seeds name differently: due time, state, last outcome.
    "timer": {"executeAt", "state", "failure"}
    | {"dueFrom", "failedFrom", "failedTo", "reason"}
    # The request that is sent, and what only timers have.
    | {"callbackUrl", "target", "headers", "payload", "namespace", "firedAt", "expireAfter"}
    | {"localTime", "timeZone", "dst"},
    "call": {"dueAt", "status", "outcome", "startedAt", "finishedAt", "expiresAt", "executionId", "timer"}
    | {"request", "tenantId", "name", "starred", "idempotencyKey", "rerunOf", "order", "createdFrom", "createdTo"},
}
"""Fields of one kind alone. Whoever adds one asks whether the other kind has it by another name."""


def test_timers_and_service_calls_have_one_name_for_one_thing(document: dict[str, Any]) -> None:
    def fields(models: tuple[str, ...], operation: str) -> dict[str, Any]:
        of_models = [document["components"]["schemas"][name]["properties"] for name in models]
        (methods,) = (
            each for each in document["paths"].values() if each.get("get", {}).get("operationId") == operation
        )
        query = {each["name"]: each["schema"] for each in methods["get"]["parameters"] if each["in"] == "query"}
        return {name: schema for each in (*of_models, query) for name, schema in each.items()}

    timer = fields(("TimerBody", "TimerResponse"), "listTimers")
    call = fields(("ServiceCallBody", "ServiceCallResponse"), "listServiceCalls")
    assert {name for name in timer if name not in call} == OF_ONE_KIND["timer"]
    assert {name for name in call if name not in timer} == OF_ONE_KIND["call"]


def test_what_timers_and_service_calls_share_has_the_same_limits(document: dict[str, Any]) -> None:
    timer, call = (
        {
            name: schema | {"description": None}
            for name, schema in document["components"]["schemas"][model]["properties"].items()
        }
        for model in ("TimerBody", "ServiceCallBody")
    )
    shared = timer.keys() & call.keys()
    assert {"tags", "retryPolicy", "timeoutSeconds", "correlationId", "delay"} <= shared
    assert {name: timer[name] for name in shared - {"retryPolicy"}} == {
        name: call[name] for name in shared - {"retryPolicy"}
    }
    of_timer, of_call = (
        document["components"]["schemas"][model]["properties"] for model in ("TimerRetryPolicy", "RetryPolicy")
    )
    assert of_timer.keys() - of_call.keys() == {"escalateUrl", "escalateTarget"}
    assert of_timer | of_call == of_timer
