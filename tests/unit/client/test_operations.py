"""The client has all operations that the OpenAPI document lists, with all arguments. A new one needs a use."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import is_dataclass
from types import GenericAlias
from typing import Any, get_type_hints

import httpx
import pytest
from pydantic import ConfigDict, TypeAdapter, ValidationError

from duetime.api.documents.openapi import openapi_document
from duetime.api.routes import all_routes
from duetime.domain.principals import Role
from duetime.testing.transport import HandlerTransport
from duetime_client import Conflict, Duetime
from tests.support.clock import NOW
from tests.support.processes import ROOT
from tests.support.stores import memory_store
from tests.support.tenants import Tenant, make_tenant_world
from tests.unit.client.uses import USES

DOCUMENT = openapi_document(all_routes())
SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]
OPERATIONS = {
    operation["operationId"]: (method.upper(), path, operation)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
}
FOR_PEOPLE = {"getConsole", "getConsoleFile", "getDocs", "getRoot"}
HEADERS_ELSEWHERE = {"Idempotency-Key", "X-Correlation-Id", "If-None-Match"}
"""They have members of the body, or save an answer that the client has no place to keep."""


@pytest.fixture(scope="module")
def unchanged() -> Iterator[Tenant]:
    with memory_store() as store:
        yield make_tenant_world(store).acme


@pytest.fixture
def tenant(operation_id: str, unchanged: Tenant) -> Iterator[Tenant]:
    """All that is read is read of the same."""
    if OPERATIONS[operation_id][0] == "GET":
        yield unchanged
        return
    with memory_store() as store:
        yield make_tenant_world(store).acme


def test_every_operation_is_here() -> None:
    assert USES.keys() == OPERATIONS.keys() - FOR_PEOPLE


@pytest.mark.parametrize("operation_id", USES)
def test_an_operation_is_used_with_all_that_it_takes(operation_id: str, tenant: Tenant) -> None:
    method, path, operation = OPERATIONS[operation_id]
    transport = HandlerTransport(tenant.handler, lambda: NOW)
    with (
        httpx.Client(transport=transport) as http,
        Duetime("http://duetime.test", api_key=tenant.keys[Role.ADMIN], tenant="acme", http_client=http) as duetime,
        # No timer has failed here.
        suppress(*([Conflict] if operation_id == "redriveTimer" else [])),
    ):
        assert list(mistyped(USES[operation_id](duetime, dict(tenant.parameters)))) == []

    rule = re.sub(r"\\{\w+\\}", "[^/]+", re.escape(path))
    asked = [each for each in transport.requests if each.method == method and re.fullmatch(rule, each.url.path)]
    assert asked
    given = {name for each in asked for name in each.url.params}
    wanted = {each["name"] for each in operation["parameters"] if each["in"] == "query"}
    # A signature stands for the key that the client has.
    assert given | {"cursor", "signature"} == wanted | {"cursor", "signature"}
    headers = {each["name"] for each in operation["parameters"] if each["in"] == "header"} - HEADERS_ELSEWHERE
    assert {name for name in headers if any(name in each.headers for each in asked)} == headers
    bodies = [json.loads(each.content) for each in asked if each.content]
    content: dict[str, Any] = operation.get("requestBody", {}).get("content", {})
    schema: dict[str, Any] = next((each["schema"] for each in content.values()), {})
    # A cursor is sent when there is a next page; the id of a timer that is put is in the path.
    elsewhere = {"cursor", "id"} if operation_id in ("putTimer", "putSchedule") else {"cursor"}
    assert members_of(*bodies) | elsewhere == properties_of(schema) | elsewhere
    assert {each.headers["content-type"] for each in asked if each.content} <= content.keys() | (
        {"application/json"} if operation_id == "patchServiceCall" else set()
    )


ANY_CLASS: ConfigDict = {"arbitrary_types_allowed": True}


def test_the_table_of_the_docs_names_every_method() -> None:
    text = (ROOT / "docs" / "client.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `duetime\.(\w+)(\(namespace\))?` \| (.*) \|$", text, re.MULTILINE)
    with Duetime("http://duetime.test") as duetime:
        for name, takes_namespace, row in rows:
            part = getattr(duetime, name)
            part = part("default") if takes_namespace else part
            public = {each for each in dir(part) if each[0] != "_"} - {"of_namespace"}
            assert {*re.findall(r"`(\w+)`", row)} == public, name


def mistyped(returned: object) -> Iterator[str]:
    """Fields of what a client returns that hold something else than they say."""
    if isinstance(returned, list | tuple):
        for each in returned:
            yield from mistyped(each)
    elif is_dataclass(returned):
        for name, hint in get_type_hints(type(returned)).items():
            value = getattr(returned, name)
            type_of_one: Any = GenericAlias(tuple, (hint,))
            try:
                TypeAdapter(type_of_one, config=ANY_CLASS).validate_python((value,), strict=True)
            except ValidationError:
                yield f"{type(returned).__name__}.{name} is {value!r}"
            yield from mistyped(value)


def members_of(*values: Any, prefix: str = "") -> set[str]:
    """Paths of all members, without what is inside of what a caller makes up."""
    found = set()
    for value in values:
        for name, member in value.items():
            path = f"{prefix}{name}"
            found.add(path)
            if name in ("request", "retryPolicy"):
                found |= members_of(member, prefix=f"{path}.")
            if name == "timers":
                found |= members_of(*member, prefix=f"{path}.")
    return found


def properties_of(schema: dict[str, Any], prefix: str = "") -> set[str]:
    """The same of a schema."""
    found = set()
    for name, member in whole(schema).get("properties", {}).items():
        path = f"{prefix}{name}"
        found.add(path)
        if name in ("request", "retryPolicy"):
            found |= properties_of(member, f"{path}.")
        if name == "timers":
            found |= properties_of(member["items"], f"{path}.")
    return found


def whole(schema: dict[str, Any]) -> dict[str, Any]:
    """Without references and null alternatives."""
    for one in schema.get("anyOf", []):
        if one != {"type": "null"}:
            return whole(one)
    if "$ref" in schema:
        found: dict[str, Any] = SCHEMAS[schema["$ref"].rpartition("/")[2]]
        return found
    return schema
