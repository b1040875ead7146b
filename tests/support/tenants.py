"""An API that asks for keys, with two tenants that have one of everything; and a sample request for every route.

All tests of tenancy and roles go through ``SAMPLES``: a new route whose good request has a body or a query needs its
line here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from duetime.api.handler import build_handler
from duetime.api.http.authentication import KeyAuthenticator
from duetime.api.http.route import PUBLIC, Route
from duetime.api.routes import all_routes
from duetime.app.api_keys import create_key
from duetime.calls.webhook_publisher import WebhookPublisher
from duetime.delivery.egress import EgressPolicy
from duetime.domain.principals import Role
from duetime.runtime.local_key import LocalSecretBox, ProcessKey
from duetime.runtime.wiring import Handler
from duetime.stores.core.store import Store
from duetime.stores.port.calls import CallRef
from duetime.testing.contract import call_steps as steps
from tests.support.api import context_for
from tests.support.call_api import call_services
from tests.support.clock import FakeClock
from tests.support.http import Answer, Api
from tests.support.outbox import make_event

CACHE_SECONDS = 5.0
CALLBACK_URL = "http://receiver.test/callback"
TARGET_ARN = "arn:aws:sqs:eu-central-1:123456789012:orders"


@dataclass(frozen=True)
class Sample:
    """A request that a route takes. ``mark`` in a text stands for something that is the tenant's own."""

    body: Mapping[str, Any] | None = None
    query: Mapping[str, str] = field(default_factory=dict)


_TIMER = {"delay": "1h", "callbackUrl": CALLBACK_URL, "payload": "mark", "tags": ["shared", "mark"]}

_NO_CALL = "0193e5a1-7c00-7abc-8def-0123456789ab"
_CALL: dict[str, Any] = {
    "request": {"method": "PUT", "url": CALLBACK_URL, "headers": {"x-mark": "mark"}, "body": "mark"},
    "tags": ["shared", "mark"],
    "correlationId": "shared",
}

_WITH_CONTENT: dict[str, Sample] = {
    "putNamespace": Sample({"maxInFlight": 7}),
    "listNamespaces": Sample(query={"limit": "1"}),
    "deleteNamespace": Sample(query={"force": "true"}),
    "pauseNamespace": Sample({"reason": "mark"}),
    "reshardNamespace": Sample({"numShards": 9}),
    "createSecret": Sample({}),
    "createTimer": Sample({"id": "new", **_TIMER}),
    "listTimers": Sample(query={"tag": "shared"}),
    "createTimers": Sample({"timers": [{"id": "t1", **_TIMER}, {"id": "new", **_TIMER}]}),
    "cancelTimers": Sample({"timers": [{"id": "t1"}]}),
    "deleteTimers": Sample({"timers": [{"id": "t1"}]}),
    "putTimer": Sample(_TIMER),
    "patchTimer": Sample({"tags": ["changed"]}),
    "redriveTimers": Sample({"ids": ["t1"]}),
    "createApiKey": Sample({"role": "reader", "name": "mark"}),
    "listApiKeys": Sample(query={"limit": "1"}),
    "submitServiceCall": Sample({"name": "mark", "idempotencyKey": "new", **_CALL}),
    "submitServiceCalls": Sample({"serviceCalls": [{"name": "mark", "idempotencyKey": "new", **_CALL}]}),
    "cancelServiceCalls": Sample({"serviceCalls": [{"id": _NO_CALL}]}),
    "deleteServiceCalls": Sample({"serviceCalls": [{"id": _NO_CALL}]}),
    "listServiceCalls": Sample(query={"limit": "1"}),
    "patchServiceCall": Sample({"tags": ["changed"], "starred": True}),
    "rerunServiceCall": Sample({"idempotencyKey": "rerun"}),
    "listExecutions": Sample(query={"limit": "1"}),
    "listEvents": Sample(query={"limit": "3"}),
    "putEventWebhook": Sample({"url": "http://receiver.test/mark"}),
    "createEventSecret": Sample({}),
    "listDeliveries": Sample(query={"limit": "1"}),
    "redriveDeliveries": Sample({"ids": ["d.1"]}),
    "createSchedule": Sample({"every": "1h", "callbackUrl": CALLBACK_URL}),
    "putSchedule": Sample({"every": "2h", "callbackUrl": CALLBACK_URL}),
    "patchSchedule": Sample({"every": "3h"}),
    "listSchedules": Sample(query={"limit": "1"}),
    "pauseSchedule": Sample({"reason": "r"}),
    "pauseSchedules": Sample({"tag": "a"}),
    "resumeSchedules": Sample({"tag": "a"}),
    "recomputeSchedules": Sample({}),
    "recomputeTimers": Sample({}),
    "backfillSchedule": Sample({"from": "2026-12-01T00:00:00Z"}),
    "cancelBackfill": Sample({}),
    "listOccurrences": Sample(query={"count": "1"}),
    "answerOccurrence": Sample(query={"scheduledAt": "2026-12-24T18:00:00Z"}),
    "putCalendar": Sample({"daysOff": ["2026-12-25"]}),
    "previewSchedule": Sample({"cron": ["0 9 * * *"]}),
}

OPERATIONS = {route.operation_id: route for route in all_routes()}
SAMPLES = dict.fromkeys(OPERATIONS, Sample()) | _WITH_CONTENT
NEEDS_KEY = sorted(route.operation_id for route in all_routes() if route.permission is not PUBLIC)


@dataclass(frozen=True)
class Tenant:
    """``parameters`` name what it has, for every parameter of a path; ``mark`` is in all that it stored."""

    name: str
    handler: Handler
    keys: Mapping[Role, str]
    parameters: dict[str, str]

    @property
    def mark(self) -> str:
        return f"mark-of-{self.name}"

    def api(self, role: Role = Role.ADMIN) -> Api:
        return Api(self.handler, namespace=f"{self.name}-orders", key=self.keys[role])

    def request(
        self,
        operation_id: str,
        parameters: Mapping[str, str] | None = None,
        *,
        role: Role = Role.ADMIN,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """The sample request to a route, about what ``parameters`` name: by default, the tenant's own."""
        route, sample = OPERATIONS[operation_id], SAMPLES[operation_id]
        path = path_of(route, parameters or self.parameters)
        body = _marked(sample.body, self.mark)
        return self.api(role).call(route.method, path, body, query=sample.query, headers=headers)


@dataclass(frozen=True)
class TenantWorld:
    store: Store
    clock: FakeClock
    handler: Handler
    acme: Tenant
    globex: Tenant


def path_of(route: Route, parameters: Mapping[str, str]) -> str:
    """``event_secret_id`` is the secret of a webhook: in its path it is a ``secret_id``, as the other kind is."""
    path = route.path.replace("event-webhook/secrets/<secret_id>", "event-webhook/secrets/<event_secret_id>")
    return re.sub(r"<(\w+)>", lambda match: parameters[match[1]], path)


def make_tenant_world(store: Store) -> TenantWorld:
    """On an initialised, empty store."""
    clock = FakeClock()
    context = replace(
        context_for(store, clock, secret_box=LocalSecretBox(ProcessKey())),
        egress=EgressPolicy(allow_targets=(TARGET_ARN,)),
        authenticate=KeyAuthenticator(store.catalogue, clock, cache_seconds=CACHE_SECONDS),
    )
    handler = build_handler(replace(context, calls=call_services(store, context=context)), all_routes())
    acme, globex = (_make_tenant(name, store, clock, handler) for name in ("acme", "globex"))
    return TenantWorld(store, clock, handler, acme, globex)


def everything_of(world: TenantWorld) -> list[Any]:
    """What Globex has, as its admin and the store see it."""
    api = world.globex.api()
    paths = (
        None,
        "/v1/namespaces/globex-orders/schedules",
        "/v1/namespaces",
        "/v1/tenants/globex/api-keys",
        "/v1/tenants/globex/service-calls",
        "/v1/tenants/globex/event-webhook/deliveries",
    )
    lists = [api.all_pages(path) for path in paths]
    return [
        *lists,
        world.store.catalogue.get_namespace("globex-orders"),
        world.store.catalogue.get_namespace("events@globex"),
        world.store.catalogue.get_namespace("days@globex"),
    ]


def _make_tenant(name: str, store: Store, clock: FakeClock, handler: Handler) -> Tenant:
    """Two of what is listed, so that lists of one have a next page."""
    created = {
        role: create_key(
            store,
            key_id=f"{name}-{role}",
            tenant_id=name,
            role=role,
            name=f"mark-of-{name}",
            expires_at=None,
            now=clock.now(),
        )
        for role in Role
    }
    keys = {role: each.text for role, each in created.items()}
    parameters = {
        "namespace": f"{name}-orders",
        "timer_id": "t1",
        "schedule_id": "s1",
        "calendar": "de",
        "tenant": name,
        "key_id": f"{name}-{Role.READER}",
        "version": "any",
        "file_name": "app.js",
    }
    tenant = Tenant(name, handler, keys, parameters)
    api = tenant.api()
    for namespace in (f"{name}-orders", f"{name}-others"):
        assert api.call("PUT", f"/v1/namespaces/{namespace}", {"numShards": 4}).status == 201
    for calendar in ("de", "at"):
        assert api.call("PUT", f"/v1/calendars/{calendar}", {"daysOff": ["2026-12-25"]}).status == 201
    for timer_id in ("t1", "t2"):
        timer = {"id": timer_id, "correlationId": "shared", **_TIMER}
        assert api.create(_marked(timer, tenant.mark)).status == 201
    for schedule_id in ("s1", "s2"):
        schedule = {"id": schedule_id, "every": "1h", "callbackUrl": CALLBACK_URL, "payload": "mark"}
        path = f"/v1/namespaces/{name}-orders/schedules"
        assert api.call("POST", path, _marked(schedule, tenant.mark)).status == 201
    secret = api.call("POST", f"/v1/namespaces/{name}-orders/secrets", {})
    assert secret.status == 201
    return replace(
        tenant,
        parameters={
            **parameters,
            "firing_id": "f",
            "answer": "ack",
            "secret_id": secret.json()["id"],
            **_make_webhook(tenant, store, clock),
            **_make_calls(tenant, store, clock),
        },
    )


def _make_webhook(tenant: Tenant, store: Store, clock: FakeClock) -> dict[str, str]:
    """A webhook with a secret, and two deliveries with the same ids as every other tenant's."""
    path = f"/v1/tenants/{tenant.name}/event-webhook"
    assert tenant.api().call("PUT", path, _marked({"url": "http://receiver.test/mark"}, tenant.mark)).status == 201
    secret = tenant.api().call("POST", f"{path}/secrets", {})
    assert secret.status == 201
    events = [
        make_event("d", number, tenant_id=tenant.name, payload_json=f'{{"of":"{tenant.mark}"}}') for number in (1, 2)
    ]
    for event in events:
        assert WebhookPublisher(store, clock=clock).publish([event]) == {}
    return {"event_secret_id": secret.json()["id"], "delivery_id": "d.1"}


def _make_calls(tenant: Tenant, store: Store, clock: FakeClock) -> dict[str, str]:
    """Two calls with the same keys as every other tenant's, one of them tried twice and finished; its parameters."""
    path = f"/v1/tenants/{tenant.name}/service-calls"
    ids = []
    for key in ("first", "second"):
        body = {"name": "mark", "idempotencyKey": key, "retryPolicy": {"maxAttempts": 2}, **_CALL}
        answer = tenant.api().call("POST", path, _marked(body, tenant.mark))
        assert answer.status == 202
        ids.append(answer.json()["id"])
    calls = store.calls
    (call,) = calls.get([CallRef(tenant.name, ids[0])], now=clock.now())
    assert call is not None
    for _ in range(2):
        call = steps.run(calls, call, is_ok=False, now=clock.now())
    assert call.outcome is not None
    return {"service_call_id": call.call_id, "execution_id": call.outcome.execution_id}


def _marked(value: Any, mark: str) -> Any:
    if isinstance(value, Mapping):
        return {name: _marked(member, mark) for name, member in value.items()}
    if isinstance(value, list):
        return [_marked(item, mark) for item in value]
    return mark if value == "mark" else value
