"""The client has all that the OpenAPI document lists of responses: models with their members, and enums."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

import duetime_client as names
from duetime.api.documents.openapi import openapi_document
from duetime.api.routes import all_routes
from duetime_client.decoding import json_name
from duetime_client.following import EventPage

SCHEMAS: dict[str, Any] = openapi_document(all_routes())["components"]["schemas"]

OWN_NAMES: dict[str, type[Any]] = {
    "AnswerResponse": names.Answered,
    "BackfillResponse": names.Backfilled,
    "CallEventType": names.EventType,
    "CancelBackfillResponse": names.CancelledBackfill,
    "CreatedKeyResponse": names.CreatedApiKey,
    "EventPage": EventPage,
    "EventResponse": names.CallEvent,
    "ReceivedResponse": names.ReceivedResponse,
    "SecretResponse": names.SigningSecret,
    "TimerRetryPolicyResponse": names.RetryPolicy,
    "TriggerResponse": names.Triggered,
}
"""Schemas whose Python class has another name. The others lose their ``Response``, if they have one."""
NAMED = {schema: OWN_NAMES.get(schema) or getattr(names, schema.removesuffix("Response"), None) for schema in SCHEMAS}
MEMBERS: dict[str, set[str]] = {
    "DeleteResponse": {"id", "namespace", "attemptInFlight"},
    "ScheduleDeletionResponse": {"id", "namespace"},
    "DeletedItem": {"id", "status", "problem", "attemptInFlight"},
    "ItemResult": {"id", "status", "problem"},
    "FieldProblem": {"field", "message"},
    "Problem": {"type", "title", "status", "detail", "code", "errors", "requestId"},
    "RedriveResponse": {"redriven", "skipped", "examined", "nextCursor", "items"},
    "BatchResponse": {"items"},
    "DeletedBatch": {"items"},
}
"""What is read one by one."""
ENUMS = {schema: python for schema, python in NAMED.items() if "enum" in SCHEMAS[schema] and python}
SENT = {"CallRequest", "RetryPolicy", "TimerRetryPolicy"}
OF_TIMERS = {"RetryPolicyResponse": {"escalateUrl", "escalateTarget"}}
"""Members of a model that the answer has of timers and schedules alone."""
MODELS = {schema: python for schema, python in NAMED.items() if python and schema not in {*ENUMS, *MEMBERS, *SENT}}


def test_every_answer_has_a_model() -> None:
    bodies = {name for name in SCHEMAS if name.endswith(("Body", "Patch", "Page", "Batch", "Summary"))}
    items = {"TimerItem", "ServiceCallItem"}
    of_receivers = {"TimerCallback", "ScheduleCallback", "CallbackResponse", "ScheduleCallbackResponse", "Taken"}
    assert SCHEMAS.keys() - bodies - items - SENT - of_receivers == {*MODELS, *ENUMS, *MEMBERS} - bodies


@pytest.mark.parametrize("name", MODELS)
def test_a_model_has_all_members_of_its_answer(name: str) -> None:
    assert {json_name(each) for each in fields(MODELS[name])} - OF_TIMERS.get(name, set()) == set(
        SCHEMAS[name]["properties"]
    )


@pytest.mark.parametrize("name", ENUMS)
def test_an_enum_has_all_values(name: str) -> None:
    assert {member.value for member in ENUMS[name]} == set(SCHEMAS[name]["enum"])


@pytest.mark.parametrize("name", MEMBERS)
def test_what_is_read_one_by_one_has_no_other_members(name: str) -> None:
    assert set(SCHEMAS[name]["properties"]) == MEMBERS[name]
