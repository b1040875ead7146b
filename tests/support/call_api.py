"""An API of service calls over an empty store in memory, and the steps that an executor would take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from duetime.api.context import ApiContext
from duetime.api.handler import build_handler
from duetime.api.routes import all_routes
from duetime.app.service_calls import CallServices
from duetime.delivery.egress import PUBLIC_ONLY, EgressPolicy
from duetime.domain.call_steps import CallRules
from duetime.domain.service_calls import ServiceCall, calls_namespace
from duetime.domain.timers import Timer
from duetime.stores.core.calls import CallStore
from duetime.stores.core.store import Store
from duetime.stores.port.calls import CallRef
from duetime.testing.contract import call_steps as steps
from duetime.testing.contract.call_builders import RULES, ids_at
from tests.support.clock import NOW, FakeClock
from tests.support.http import Answer, Api
from tests.support.stores import memory_store

TENANT = "acme"
OTHER = "globex"
URL = "http://receiver.test/hook"
BODY: dict[str, Any] = {"name": "report", "request": {"method": "GET", "url": URL}}
"""The least that can be submitted."""
LIFE = [
    "ServiceCallSubmitted",
    "ServiceCallScheduled",
    "DueTimeReached",
    "ServiceCallRunning",
    "ExecutionStarted",
    "ExecutionSucceeded",
    "ServiceCallSucceeded",
]
"""The events of a call that succeeds at once."""


@dataclass(frozen=True, slots=True)
class CallWorld:
    """``stored`` collects the timers that the handler told of."""

    store: Store
    calls: CallStore
    clock: FakeClock
    api: Api
    context: ApiContext
    stored: list[Timer] = field(default_factory=list)

    def path(self, *segments: str, tenant: str = TENANT) -> str:
        return "/".join([f"/v1/tenants/{tenant}/service-calls", *segments])

    def submit(self, body: Mapping[str, Any] | str | None = None, *, tenant: str = TENANT, **more: Any) -> Answer:
        """``more`` are members of the body beside the least, or ``headers``."""
        headers = more.pop("headers", None)
        return self.api.call("POST", self.path(tenant=tenant), BODY | more if body is None else body, headers=headers)

    def submitted(self, *, tenant: str = TENANT, **more: Any) -> dict[str, Any]:
        """A new call as JSON."""
        answer = self.submit(tenant=tenant, **more)
        assert answer.status == 202, answer
        document: dict[str, Any] = answer.json()
        return document

    def patch(self, call_id: str, body: dict[str, Any] | str, **more: Any) -> Answer:
        return self.api.call("PATCH", self.path(call_id), body, **more)

    def delete(self, call_id: str, **more: Any) -> Answer:
        return self.api.call("DELETE", self.path(call_id), **more)

    def post(self, call_id: str, what: str, body: dict[str, Any] | None = None, **more: Any) -> Answer:
        """``what`` is ``cancel``, ``fire`` or ``rerun``."""
        return self.api.call("POST", self.path(call_id, what), body, **more)

    def call(self, call_id: str, *, tenant: str = TENANT) -> ServiceCall:
        """As it is stored."""
        (call,) = self.calls.get([CallRef(tenant, call_id)], now=self.clock.now())
        assert call is not None
        return call

    def begin(self, call_id: str, *, tenant: str = TENANT) -> ServiceCall:
        """What the executor does when the call is due."""
        return steps.begin(self.calls, self.call(call_id, tenant=tenant), now=self.clock.now())

    def finish(self, call_id: str, *, tenant: str = TENANT, is_ok: bool = True) -> ServiceCall:
        """A whole execution, or the end of the one that is open."""
        call = self.call(call_id, tenant=tenant)
        if call.execution_id is None:
            call = self.begin(call_id, tenant=tenant)
        return steps.conclude(self.calls, call, is_ok=is_ok, now=self.clock.now())

    def everything(self) -> list[ServiceCall]:
        """What is stored, of both tenants."""
        return [
            self.call(item["id"], tenant=tenant)
            for tenant in (TENANT, OTHER)
            for item in self.api.all_pages(self.path(tenant=tenant))
        ]

    def has_calls(self, tenant: str = TENANT) -> bool:
        """Whether the tenant ever submitted one."""
        return self.store.catalogue.get_namespace(calls_namespace(tenant)) is not None


def call_services(store: Store, *, context: ApiContext, rules: CallRules = RULES) -> CallServices:
    return CallServices.of(
        store,
        rules=rules,
        num_shards=4,
        new_id=context.new_id,
        on_stored=context.on_stored,
        clock=context.clock,
    )


@contextmanager
def call_world(*, egress: EgressPolicy = PUBLIC_ONLY) -> Iterator[CallWorld]:
    with memory_store() as store:
        yield call_world_over(store, egress=egress)


def call_world_over(store: Store, *, egress: EgressPolicy = PUBLIC_ONLY, clock: FakeClock | None = None) -> CallWorld:
    clock = clock or FakeClock()
    stored: list[Timer] = []
    context = ApiContext(store=store, clock=clock, new_id=ids_at(NOW), on_stored=stored.extend, egress=egress)
    context = replace(context, calls=call_services(store, context=context))
    api = Api(build_handler(context, all_routes()))
    return CallWorld(store, store.calls, clock, api, context, stored)
