"""The client by itself: where it sends requests, for whom, and requests of any kind."""

from __future__ import annotations

import json

import httpx
import pytest

import duetime_client as names
from duetime.domain.principals import Role
from duetime.testing.transport import HandlerTransport
from duetime_client import UNSET, Duetime, RawJson
from tests.support.clock import NOW
from tests.support.stores import memory_store
from tests.support.tenants import CALLBACK_URL, make_tenant_world


def test_unset_is_what_it_says() -> None:
    assert repr(UNSET) == "UNSET"


def test_the_key_says_the_tenant_and_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with memory_store() as store:
        world = make_tenant_world(store)
        tenant = world.acme
        transport = HandlerTransport(world.handler, lambda: NOW)
        monkeypatch.setenv("DUETIME_URL", "http://duetime.test")
        monkeypatch.setenv("DUETIME_API_KEY", f"{tenant.keys[Role.ADMIN]}\n")
        with httpx.Client(transport=transport) as http, Duetime(http_client=http) as duetime:
            assert {each.tenant_id for each in duetime.api_keys.list()} == {tenant.name}
            assert list(duetime.service_calls.list())
            answer = duetime.request("GET", "/v1/tenants/{tenant}/api-keys", query=[("limit", "1")])
            assert len(answer.json()["items"]) == 1
        assert [request.url.path for request in transport.requests].count("/v1/principal") == 1
        assert {request.url.host for request in transport.requests} == {"duetime.test"}


def test_any_request_can_be_sent_and_fails_as_others_do() -> None:
    with memory_store() as store:
        world = make_tenant_world(store)
        tenant = world.acme
        transport = HandlerTransport(world.handler, lambda: NOW)
        with (
            httpx.Client(transport=transport) as http,
            Duetime("http://duetime.test", api_key=tenant.keys[Role.ADMIN], http_client=http) as duetime,
        ):
            path = f"/v1/namespaces/{tenant.parameters['namespace']}/timers"
            raw = RawJson(json.dumps({"id": "raw", "delay": "1h", "callbackUrl": CALLBACK_URL}))
            assert duetime.request("POST", path, body=raw).status == 201
            (result,) = duetime.timers(tenant.parameters["namespace"]).create_many([raw])
            assert (result.id, result.status) == ("raw", 200)
            with pytest.raises(names.NotFound, match="timer_not_found"):
                duetime.request("DELETE", f"{path}/nothing")
            with pytest.raises(names.InvalidRequest):
                duetime.request("POST", path, body={})
