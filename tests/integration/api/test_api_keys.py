"""Who has a good API key is answered; how keys are made, shown and ended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from duetime.api.handler import build_handler
from duetime.api.http.authentication import KeyAuthenticator
from duetime.api.http.route import PUBLIC
from duetime.api.routes import all_routes
from duetime.domain.api_keys import ApiKey
from duetime.domain.errors import StoreUnavailable
from duetime.domain.principals import Role
from duetime.domain.times import format_instant
from duetime.testing.contract.builders import seconds
from tests.support.api import context_for
from tests.support.clock import NOW
from tests.support.http import Api
from tests.support.parts import Overlay
from tests.support.stores import memory_store
from tests.support.tenants import (
    NEEDS_KEY,
    OPERATIONS,
    SAMPLES,
    TenantWorld,
    everything_of,
    make_tenant_world,
    path_of,
)


@pytest.fixture
def world() -> Iterator[TenantWorld]:
    with memory_store() as store:
        yield make_tenant_world(store)


def _away(key_id: str) -> ApiKey | None:
    raise StoreUnavailable("away")


def test_without_a_key_nothing_is_answered(world: TenantWorld) -> None:
    before = everything_of(world)
    for operation_id in NEEDS_KEY:
        route, sample = OPERATIONS[operation_id], SAMPLES[operation_id]

        answer = Api(world.handler).call(
            route.method, path_of(route, world.acme.parameters), sample.body, query=sample.query
        )

        assert (answer.status, answer.code) == (401, "unauthenticated"), operation_id
        assert answer.headers["www-authenticate"] == 'Bearer realm="duetime"'
    assert everything_of(world) == before


def test_a_store_that_does_not_answer_lets_nobody_in(world: TenantWorld) -> None:
    away = Overlay(world.store, catalogue=Overlay(world.store.catalogue, get_api_key=_away))
    context = context_for(away, world.clock)
    authenticator = KeyAuthenticator(away.catalogue, world.clock, cache_seconds=0)
    handler = build_handler(replace(context, authenticate=authenticator))

    answer = Api(handler, key=world.acme.keys[Role.ADMIN]).get("/v1/namespaces")

    assert (answer.status, answer.code) == (503, "store_unavailable")


def test_public_routes_need_none(world: TenantWorld) -> None:
    for route in all_routes():
        if route.permission is PUBLIC:
            path = route.path.replace("<version>", "any").replace("<file_name>", "app.js")
            assert Api(world.handler).get(path).status == (307 if path == "/" else 200)


@pytest.mark.parametrize("role", Role)
def test_a_key_tells_whose_it_is_and_what_it_may(world: TenantWorld, role: Role) -> None:
    answer = world.acme.api(role).get("/v1/principal")
    assert answer.json() == {"tenantId": "acme", "role": role, "keyId": f"acme-{role}"}
    assert answer.headers["cache-control"] == "no-store"


def test_where_no_key_is_asked_for_nobody_is_anybody(world: TenantWorld) -> None:
    api = Api(build_handler(context_for(world.store, world.clock)))
    assert api.get("/v1/principal").json() == {"tenantId": None, "role": None, "keyId": None}


def test_head_needs_a_key_too(world: TenantWorld) -> None:
    assert Api(world.handler).call("HEAD", "/v1/namespaces").status == 401


def test_a_key_in_the_query_is_refused_everywhere(world: TenantWorld) -> None:
    key = world.acme.keys[Role.ADMIN]
    for path in ("/v1/namespaces", "/v1/namespaces/acme-orders", "/health"):
        for query in ({"api_key": key}, {key: ""}):
            answer = world.acme.api().get(path, query=query)
            assert answer.status == 400
            assert "header" in answer.json()["detail"]
            assert key not in answer.text


def test_a_key_is_shown_once(world: TenantWorld) -> None:
    created = world.acme.request("createApiKey")

    assert (created.status, created.headers["cache-control"]) == (201, "no-store")
    key = created.json()["key"]
    assert Api(world.handler, key=key).get("/v1/namespaces").status == 200
    listed = world.acme.api().all_pages("/v1/tenants/acme/api-keys")
    shown = {name: value for name, value in created.json().items() if name != "key"}
    assert shown in listed
    assert key.rpartition("_")[2] not in str(listed)


def test_a_deleted_key_is_refused_within_seconds(world: TenantWorld) -> None:
    reader = world.acme.api(Role.READER)
    assert reader.get("/v1/namespaces").status == 200

    assert world.acme.request("deleteApiKey").status == 204

    world.clock.advance(5.001)
    answer = reader.get("/v1/namespaces")
    assert answer.status == 401
    assert answer.headers["www-authenticate"] == 'Bearer realm="duetime", error="invalid_token"'


def test_an_admin_may_delete_the_key_that_asks_and_the_last_one(world: TenantWorld) -> None:
    for role in Role:
        answer = world.acme.request("deleteApiKey", world.acme.parameters | {"key_id": f"acme-{role}"})
        assert answer.status == 204
    world.clock.advance(5.001)
    assert world.acme.api().get("/v1/namespaces").status == 401


@pytest.mark.parametrize("end", [{"expiresIn": "90s"}, {"expiresAt": format_instant(NOW + seconds(90))}])
def test_a_key_ends_when_it_was_said(world: TenantWorld, end: dict[str, str]) -> None:
    created = world.acme.api().call("POST", "/v1/tenants/acme/api-keys", {"role": "reader", **end})
    assert created.json()["expiresAt"] == format_instant(NOW + seconds(90))
    api = Api(world.handler, key=created.json()["key"])

    world.clock.advance(89.999)
    assert api.get("/v1/namespaces").status == 200
    world.clock.advance(0.001)
    ended = api.get("/v1/namespaces")
    assert (ended.status, ended.json()["detail"]) == (401, "the API key has expired")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "role"),
        ({"role": "owner"}, "role"),
        ({"role": "reader", "name": "a\nb"}, "name"),
        ({"role": "reader", "name": "x" * 101}, "name"),
        ({"role": "reader", "expiresIn": 0}, "expiresIn"),
        ({"role": "reader", "expiresIn": "11y"}, "expiresIn"),
        ({"role": "reader", "expiresAt": format_instant(NOW)}, "expiresAt"),
        ({"role": "reader", "expiresAt": "2030-01-01T00:00:00Z", "expiresIn": "1h"}, "expiresIn"),
        ({"role": "reader", "tenantId": "globex"}, "tenantId"),
    ],
)
def test_a_bad_key_is_not_stored(world: TenantWorld, body: dict[str, Any], field: str) -> None:
    before = world.acme.api().all_pages("/v1/tenants/acme/api-keys")

    answer = world.acme.api().call("POST", "/v1/tenants/acme/api-keys", body)

    assert (answer.status, set(answer.faults)) == (400, {field})
    assert world.acme.api().all_pages("/v1/tenants/acme/api-keys") == before


def test_what_cannot_be_the_id_of_a_key_is_not_looked_up(world: TenantWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """PostgreSQL takes no NUL."""
    asked: list[str] = []
    monkeypatch.setattr(world.store.catalogue, "delete_api_key", lambda tenant, key_id: asked.append(key_id))
    for key_id in ("%00", "a%0A", "a" * 65):
        answer = world.acme.api().call("DELETE", f"/v1/tenants/acme/api-keys/{key_id}")
        assert (answer.status, answer.code) == (404, "api_key_not_found")
    assert asked == []
