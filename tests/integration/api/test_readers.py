"""What a reader's key shows of what others gave: all but credentials. Who may write sees what was written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from duetime.api.handler import build_handler
from duetime.api.http.authentication import KeyAuthenticator
from duetime.api.routes import all_routes
from duetime.domain.attempts import AttemptOutcome, AttemptRecord, append_attempt
from duetime.domain.name_patterns import parse_name_patterns
from duetime.domain.namespaces import Namespace
from duetime.domain.principals import Role
from duetime.domain.redaction import RedactionRules
from duetime.domain.timers import Timer
from duetime.testing.contract.builders import failed, leased
from duetime.testing.contract.steps import claim_shard
from tests.support.api import context_for
from tests.support.call_api import call_services
from tests.support.http import Api
from tests.support.stores import memory_store
from tests.support.tenants import Tenant, TenantWorld, make_tenant_world

HIDDEN = "[redacted]"
URL = "https://receiver.test/hook?order=7&token=t0ken"
SHOWN_URL = f"https://receiver.test/hook?order=7&token={HIDDEN}"
HEADERS = {"Authorization": "Bearer s3cret", "Accept": "text/csv", "X-Next": "https://x.test/?sig=s1gned&page=2"}
SHOWN_HEADERS = {"Authorization": HIDDEN, "Accept": "text/csv", "X-Next": f"https://x.test/?sig={HIDDEN}&page=2"}
BODY = {"order": 7, "card": {"password": "h1dden", "name": "A"}, "tokens": ["t0ken", 1]}
SHOWN_BODY = {"order": 7, "card": {"password": HIDDEN, "name": "A"}, "tokens": HIDDEN}
SECRETS = ("t0ken", "s3cret", "s1gned", "h1dden")


@pytest.fixture
def world() -> Iterator[TenantWorld]:
    with memory_store() as store:
        yield make_tenant_world(store)


@pytest.fixture
def tenant(world: TenantWorld) -> Tenant:
    return world.acme


def both(tenant: Tenant, path: str, **query: str) -> tuple[Any, Any]:
    """What a reader and a writer get; the reader gets no secret."""
    seen = [tenant.api(role).call("GET", path, query=query) for role in (Role.READER, Role.WRITER)]
    assert [answer.status for answer in seen] == [200, 200]
    assert not [secret for secret in SECRETS if secret in seen[0].text]
    assert seen[0].headers.get("etag") == seen[1].headers.get("etag")
    return seen[0].json(), seen[1].json()


def test_the_service_call_of_a_schedule(tenant: Tenant) -> None:
    api = tenant.api(Role.WRITER)
    request = {"method": "POST", "url": URL, "headers": HEADERS, "body": BODY}
    body = {"id": "s9", "every": "1h", "serviceCall": {"name": "report", "request": request}}
    path = "/v1/namespaces/acme-orders/schedules"
    assert api.call("POST", path, body).status == 201

    shown, whole = (each["serviceCall"]["request"] for each in both(tenant, f"{path}/s9"))

    assert (shown["url"], shown["headers"], shown["body"]) == (SHOWN_URL, SHOWN_HEADERS, SHOWN_BODY)
    assert (whole["url"], whole["headers"]["Authorization"], whole["body"]) == (URL, HIDDEN, BODY)
    (listed, _) = both(tenant, path)
    (body,) = [each["serviceCall"]["request"]["body"] for each in listed["items"] if each["id"] == "s9"]
    assert body == SHOWN_BODY


def test_a_timer(tenant: Tenant) -> None:
    api = tenant.api(Role.WRITER)
    given = {"delay": "1h", "callbackUrl": URL, "headers": HEADERS, "payload": BODY, "tags": ["it"]}
    given["retryPolicy"] = {"escalateUrl": URL}
    written = api.put("secret", given).json()
    reader, writer = both(tenant, f"{api.timers}/secret")
    assert writer == written
    assert (writer["callbackUrl"], writer["headers"], writer["payload"]) == (URL, HEADERS, BODY)
    shown = {"callbackUrl": SHOWN_URL, "headers": SHOWN_HEADERS, "payload": SHOWN_BODY}
    policy = writer["retryPolicy"] | {"escalateUrl": SHOWN_URL}
    assert reader == writer | shown | {"retryPolicy": policy}

    reader_list, writer_list = both(tenant, api.timers, tag="it")
    assert (reader_list["items"], writer_list["items"]) == ([reader], [writer])


def test_a_timer_without_anything(tenant: Tenant) -> None:
    api = tenant.api(Role.WRITER)
    api.put("bare", {"delay": "1h", "callbackUrl": "https://receiver.test/"})
    reader, writer = both(tenant, f"{api.timers}/bare")
    assert reader == writer


def fail(world: TenantWorld, namespace: Namespace, timer_id: str) -> None:
    """Its receiver answers with a secret."""
    timer = world.store.timers.get(namespace, timer_id, now=world.clock.now())
    assert isinstance(timer, Timer)
    record = AttemptRecord(
        number=1,
        firing_id=timer.firing_id,
        started_at=world.clock.now(),
        duration_ms=1,
        outcome=AttemptOutcome.FAILED,
        status=400,
        headers={"content-type": "application/json"},
        body=json.dumps(BODY),
    )
    lease = claim_shard(world.store, timer.shard_id, "test", lease_seconds=10, now=world.clock.now())
    assert lease is not None
    outcome = replace(failed(timer), attempt_log=append_attempt(None, record))
    world.store.timers.record(leased([outcome], lease), now=world.clock.now())
    world.store.leases.release([lease], now=world.clock.now())


def test_the_answers_of_receivers(world: TenantWorld, tenant: Tenant) -> None:
    for name, timer_id, path in (
        ("acme-orders", "t1", f"{tenant.api().timers}/t1/attempts"),
        ("events@acme", "d.1", "/v1/tenants/acme/event-webhook/deliveries/d.1/attempts"),
    ):
        namespace = world.store.catalogue.get_namespace(name)
        assert namespace is not None
        fail(world, namespace, timer_id)
        reader, writer = both(tenant, path)
        assert json.loads(writer["items"][0]["body"]) == BODY
        assert json.loads(reader["items"][0]["body"]) == SHOWN_BODY
        assert reader["items"][0] | {"body": ""} == writer["items"][0] | {"body": ""}


@pytest.mark.parametrize(
    ("body", "headers", "shown"),
    [
        (BODY, {}, SHOWN_BODY),
        ("a=1&password=h1dden", {"Content-Type": "application/x-www-form-urlencoded"}, f"a=1&password={HIDDEN}"),
        (json.dumps(BODY), {"content-type": "application/json"}, None),
        ("plain", {}, "plain"),
    ],
)
def test_a_service_call(tenant: Tenant, body: Any, headers: dict[str, str], shown: Any) -> None:
    api = tenant.api(Role.WRITER)
    path = "/v1/tenants/acme/service-calls"
    request = {"method": "POST", "url": URL, "headers": HEADERS | headers, "body": body}
    call = api.call("POST", path, {"name": "secret", "request": request, "delay": "1h"}).json()
    reader, writer = both(tenant, f"{path}/{call['id']}")
    assert writer == call
    assert (writer["request"]["url"], writer["request"]["body"]) == (URL, body)
    seen = reader["request"]["body"]
    assert (json.loads(seen) == SHOWN_BODY) if shown is None else (seen == shown)
    assert reader["request"]["url"] == SHOWN_URL
    assert reader["request"]["headers"] == SHOWN_HEADERS | headers
    assert {**reader, "request": None} == {**writer, "request": None}

    reader_list, writer_list = both(tenant, path, name="secret")
    assert reader_list["items"][0]["request"]["url"] == SHOWN_URL
    assert writer_list["items"][0]["request"]["url"] == URL
    both(tenant, f"{path}/{call['id']}/events")


def test_an_operator_says_what_is_a_secret(world: TenantWorld, tenant: Tenant) -> None:
    context = replace(
        context_for(world.store, world.clock),
        authenticate=KeyAuthenticator(world.store.catalogue, world.clock, cache_seconds=0),
        redaction=RedactionRules(headers=parse_name_patterns("accept"), fields=parse_name_patterns("order")),
    )
    handler = build_handler(replace(context, calls=call_services(world.store, context=context)), all_routes())
    tenant.api().put("secret", {"delay": "1h", "callbackUrl": URL, "headers": HEADERS, "payload": BODY})
    shown = Api(handler, namespace="acme-orders", key=tenant.keys[Role.READER]).read("secret").json()
    assert shown["headers"]["Accept"] == HIDDEN
    assert shown["headers"]["Authorization"] == HEADERS["Authorization"]
    assert shown["payload"] == BODY | {"order": HIDDEN}
