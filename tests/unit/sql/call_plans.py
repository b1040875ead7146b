"""What is done with service calls, and the indexes that SQLite is meant to use for it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from duetime.domain.service_calls import CallStatus, Method, ServiceCall, request_spec
from duetime.stores.port.calls import CallFilter, CallOrder, CallRef
from duetime.testing.contract import call_builders as make
from duetime.testing.contract import call_steps as steps
from duetime.testing.contract.steps import claim_shard
from tests.support.clock import NOW
from tests.support.sql_store import SqlStore

LATER = NOW + timedelta(hours=1)
TABLES = ("service_calls", "service_call_tags", "http_execution_log", "outbox", "timers")
BY_ID = "sqlite_autoindex_service_calls_1 (tenant_id=? AND service_call_id=?)"
BY_SEQUENCE = "idx_outbox_sequence (tenant_id=? AND aggregate_id=? AND event_sequence=?)"
BY_TIMER_ID = "idx_timer_lookup (timer_namespace=? AND shard_id=? AND timer_id=?)"

Action = Callable[[SqlStore, ServiceCall], object]


def fill(store: SqlStore, *, calls_per_tenant: int) -> None:
    """Three tenants with calls in every state, with tags, keys and stars."""
    calls = store.calls
    stored = [
        make.submitted(
            tenant_id=tenant_id,
            due_at=LATER,
            tags=("a", f"t{number}"),
            name=f"n{number % 7}",
            idempotency_key=f"k{number}",
            retry_policy_json=make.RETRIED if number % 3 else None,
        )
        for tenant_id in ("acme", "beta", "zeta")
        for number in range(calls_per_tenant)
    ]
    steps.applied(calls, *stored)
    begun = [make.begun(each.after) for each in stored[::2]]
    steps.applied(calls, *begun)
    ended = [make.concluded(each.after, each.executions[0], is_ok=False) for each in begun[::2]]
    steps.applied(calls, *ended)
    steps.applied(calls, *(make.amended(each.after, starred=True) for each in ended[::2]))
    store.outbox.mark_published(store.outbox.unpublished(limit=100), now=NOW)


def steps_of_life(store: SqlStore, call: ServiceCall) -> None:
    request = request_spec(method=Method.PUT, url="http://other.test/", headers_json=None, body_json=None)
    changed = steps.applied(store.calls, make.amended(call, tags=("b", "c"), request=request))
    running = steps.begin(store.calls, changed, now=LATER)
    steps.apply(store.calls, make.begun(changed))
    steps.conclude(store.calls, running, now=LATER)


def listing(**conditions: Any) -> Action:
    """Two pages."""
    wanted = CallFilter(**conditions)

    def read(store: SqlStore, call: ServiceCall) -> None:
        page = store.calls.list(call.tenant_id, wanted, cursor=None, limit=1, now=NOW)
        assert page.next_cursor is not None
        store.calls.list(call.tenant_id, wanted, cursor=page.next_cursor, limit=3, now=NOW)

    return read


def apply_with_lease(store: SqlStore, call: ServiceCall) -> None:
    lease = claim_shard(store, call.shard_id, "w", lease_seconds=10, now=NOW)
    assert lease is not None
    steps.apply(store.calls, make.begun(call), leases=[lease])


OF_CALL = "(tenant_id=? AND service_call_id=?)"
CASCADE = (
    f"service_call_tags USING COVERING INDEX sqlite_autoindex_service_call_tags_1 {OF_CALL}",
    f"http_execution_log USING COVERING INDEX idx_http_execution_log_number {OF_CALL}",
)
TAG = "service_call_tags USING COVERING INDEX idx_service_call_tags_tag (tenant_id=? AND tag=?"
CORRELATION = "service_calls USING INDEX idx_service_calls_correlation (tenant_id=? AND correlation_id=?"
EXECUTION = "http_execution_log USING INDEX sqlite_autoindex_http_execution_log_1"
NUMBER = "http_execution_log USING INDEX idx_http_execution_log_number"
DUE = "service_calls USING INDEX idx_service_calls_due (tenant_id=? AND status=?"
ALL = "service_calls USING INDEX sqlite_autoindex_service_calls_1 (tenant_id=?"
STATUS = "service_calls USING INDEX idx_service_calls_status (tenant_id=? AND status=?"
STARRED = "service_calls USING INDEX idx_service_calls_starred (tenant_id=?"


def pages(index: str) -> set[str]:
    """The first page of a list, and the next one."""
    return {f"{index})", f"{index} AND service_call_id<?)"}


LISTS: dict[str, tuple[Action, set[str]]] = {
    "all": (listing(), pages(ALL)),
    "dates": (
        listing(submitted_from=NOW, submitted_to=LATER),
        {f"{ALL} AND service_call_id>? AND service_call_id<?)"},
    ),
    "status": (listing(status=CallStatus.SCHEDULED), pages(STATUS)),
    "tag": (listing(tags=("a",)), {*pages(TAG), f"service_calls USING INDEX {BY_ID}"}),
    "starred": (listing(starred=True), pages(STARRED)),
    "correlation": (listing(correlation_id="corr-1"), pages(CORRELATION)),
    "name": (
        listing(name_prefix="n"),
        {
            "service_calls USING INDEX idx_service_calls_name (tenant_id=? AND name=? AND service_call_id<?)",
            "service_calls USING INDEX idx_service_calls_name (tenant_id=? AND name>? AND name<?)",
        },
    ),
    "due": (
        listing(status=CallStatus.SCHEDULED, order=CallOrder.DUE),
        {
            f"{DUE})",
            f"{DUE} AND due_at=? AND service_call_id>?)",
        },
    ),
}


POINTS: dict[str, tuple[Action, set[str]]] = {
    "get": (
        lambda store, call: store.calls.get([steps.ref(call)], now=NOW),
        {f"service_calls USING INDEX {BY_ID}"},
    ),
    "get many": (
        lambda store, call: store.calls.get([steps.ref(call), CallRef(call.tenant_id, "x")], now=NOW),
        {f"service_calls USING INDEX {BY_ID}"},
    ),
    "idempotency key": (
        lambda store, call: store.calls.find_by_idempotency_key(call.tenant_id, "mine", now=NOW),
        {"service_calls USING INDEX idx_service_calls_idempotency (tenant_id=? AND idempotency_key=?)"},
    ),
    "execution": (
        lambda store, call: store.calls.get_execution(call.tenant_id, call.call_id, "e"),
        {f"{EXECUTION} (tenant_id=? AND service_call_id=? AND execution_id=?)"},
    ),
    "executions": (
        lambda store, call: store.calls.list_executions(call.tenant_id, call.call_id, cursor=None, limit=2),
        {f"{NUMBER} (tenant_id=? AND service_call_id=?)"},
    ),
    "events": (
        lambda store, call: store.calls.list_events(call.tenant_id, call.call_id, after=1, limit=2),
        {
            "outbox USING INDEX idx_outbox_sequence (tenant_id=? AND aggregate_id=? AND event_sequence>?)",
            f"service_calls USING INDEX {BY_ID}",
        },
    ),
    "deleting": (
        lambda store, call: store.calls.delete(call.tenant_id, call.call_id, now=NOW),
        {f"service_calls USING INDEX {BY_ID}", f"timers USING INDEX {BY_TIMER_ID}", *CASCADE},
    ),
    "unpublished of one": (
        lambda store, call: store.outbox.unpublished_of(steps.ref(call), limit=5),
        {"outbox USING INDEX idx_outbox_unpublished (tenant_id=? AND aggregate_id=?)"},
    ),
    "unpublished": (
        lambda store, call: store.outbox.unpublished(limit=70, skip=frozenset({steps.ref(call)})),
        {
            "outbox USING INDEX idx_outbox_unpublished (tenant_id>?)",
            "outbox USING INDEX idx_outbox_unpublished (tenant_id>? AND tenant_id<?)",
        },
    ),
    "marking": (
        lambda store, call: store.outbox.mark_published(
            store.outbox.unpublished_of(steps.ref(call), limit=5), now=NOW
        ),
        {
            "outbox USING INDEX idx_outbox_unpublished (tenant_id=? AND aggregate_id=?)",
            f"outbox USING INDEX {BY_SEQUENCE}",
        },
    ),
    "pruning": (
        lambda store, _: store.calls.prune(now=NOW + make.RETENTION, events_published_before=LATER, limit=1000),
        {
            "outbox USING COVERING INDEX idx_outbox_published (published_at>? AND published_at<?)",
            f"outbox USING INDEX {BY_SEQUENCE}",
            "service_calls USING INDEX idx_service_calls_expiry (expires_at>? AND expires_at<?)",
            f"service_calls USING INDEX {BY_ID}",
            f"timers USING INDEX {BY_TIMER_ID}",
            *CASCADE,
        },
    ),
}


OTHERS: dict[str, Action] = {
    "steps": steps_of_life,
    "a step with a lease": apply_with_lease,
    "a taken key": lambda store, _: steps.apply(store.calls, make.submitted(idempotency_key="mine", tags=("x",))),
    "a filter that needs checking": listing(starred=False, tags=("a",), due_to=LATER),
    "nobody": lambda store, _: store.calls.get([CallRef("nobody", "x")], now=NOW),
}
