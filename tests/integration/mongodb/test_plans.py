"""By which index each search is answered: no search without one, nothing sorted.

On any server the searches that are sent are held against the indexes that are there (plans.py). On a server whose
planner is MongoDB's it is asked too. SecantusDB's planner sorts where an index has the
order and may pass over an index that it could use, so of it only the searches with a hint are asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from duetime.domain.namespaces import Namespace
from duetime.domain.service_calls import CallStatus
from duetime.domain.timers import Rearm, TimerChange, TimerState
from duetime.stores.backends.mongodb.database import READ_AS
from duetime.stores.core.store import Store
from duetime.stores.port.calls import CallFilter, CallOrder
from duetime.stores.port.timers import PutMode, TimerFilter, TimerRef
from duetime.testing.contract import call_builders as make
from duetime.testing.contract import call_steps as steps
from duetime.testing.contract.builders import failed, fired, make_timer, make_timers, seconds
from duetime.testing.contract.steps import claim, create, record
from tests.integration.mongodb.conftest import Commands
from tests.integration.mongodb.plans import Query, queries, serving_index
from tests.support.clock import NOW
from tests.support.mongodb import database_of, is_stand_in

LATER = NOW + timedelta(hours=1)
ID = "_id_"

Action = Callable[[Store, Namespace], object]


def record_some(store: Store, single: Namespace) -> None:
    lease = claim(store, 0)
    (lease,) = [each for each in store.leases.renew([lease], lease_seconds=10, now=NOW) if each is not None]
    (timer, *others) = store.timers.due(0, until=NOW, limit=3).timers
    record(store, [failed(timer), *map(fired, others)], lease)
    store.timers.rearm(single, [TimerRef(timer.timer_id)], rearm=Rearm.REDRIVE, now=NOW)
    store.leases.release([lease], now=NOW)
    store.timers.prune(now=LATER + timedelta(days=100), limit=5)


def page_through_due(store: Store, _: Namespace) -> None:
    page = store.timers.due(0, until=NOW, limit=2)
    store.timers.due(0, until=NOW, limit=9, cursor=page.cursor)
    store.timers.due(0, until=NOW, limit=9, since=NOW, known_next=LATER)


def page_through_list(store: Store, single: Namespace) -> None:
    for wanted in (TimerFilter(), TimerFilter(state=TimerState.SCHEDULED)):
        page = store.timers.list(single, wanted, cursor=None, limit=2, now=NOW)
        store.timers.list(single, wanted, cursor=page.next_cursor, limit=2, now=NOW)


def page_through_correlated(store: Store, single: Namespace) -> None:
    page = store.timers.find_by_correlation(single, "c", cursor=None, limit=2, now=NOW)
    store.timers.find_by_correlation(single, "c", cursor=page.next_cursor, limit=2, now=NOW)


TIMERS: dict[str, tuple[Action, set[str]]] = {
    "nothing due": (lambda store, _: store.timers.due(0, until=NOW - seconds(9), limit=5), {"timer_due"}),
    "due": (page_through_due, {"timer_due"}),
    "leases and recording": (
        record_some,
        {"timer_due", "timer_lookup", "timer_expiry", "idempotency_record_expiry"},
    ),
    "statuses": (lambda store, _: store.leases.statuses([0, 1], now=NOW), {"timer_lookup"}),
    "get": (lambda store, single: store.timers.get(single, "t0001", now=NOW), {"timer_lookup"}),
    "replace": (
        lambda store, single: store.timers.put(make_timers(single, 3), mode=PutMode.REPLACE, now=NOW),
        {"timer_lookup"},
    ),
    "update": (
        lambda store, single: store.timers.update(single, "t0002", TimerChange(), firing_id="f", now=NOW),
        {"timer_lookup"},
    ),
    "delete": (
        lambda store, single: store.timers.delete(single, [TimerRef("t0003"), TimerRef("t0004")], now=NOW),
        {"timer_lookup"},
    ),
    "list": (page_through_list, {"timer_lookup"}),
    "correlation": (page_through_correlated, {"timer_correlation"}),
}


@pytest.fixture
def single(store: Store, commands: Commands) -> Namespace:
    namespace = store.catalogue.create_namespace("single", num_shards=1, dedicated=False, now=NOW)[0]
    create(store, *make_timers(namespace, 8, correlation_id="c"), make_timer(namespace, "later", execute_at=LATER))
    commands.clear()
    return namespace


def used(store: Store, commands: Commands) -> set[str]:
    """The indexes that answer what was sent, each search checked."""
    found = list(queries(commands))
    names = set()
    is_planner_mongodbs = not is_stand_in(database_of(store).client)
    for query in found:
        indexes: Any = database_of(store)[query.collection].index_information()
        name = serving_index(query, indexes)
        names.add(name)
        if query.hint is not None or is_planner_mongodbs:
            check_plan(store, query, name, is_planner_mongodbs=is_planner_mongodbs)
    assert found
    return names


def check_plan(store: Store, query: Query, name: str, *, is_planner_mongodbs: bool) -> None:
    """What the server itself says of it."""
    explained = database_of(store).command(
        "explain", query.command, verbosity="executionStats", codec_options=READ_AS
    )
    stages = list(stages_of(explained["queryPlanner"]["winningPlan"]))
    kinds = {stage["stage"] for stage in stages}
    assert "COLLSCAN" not in kinds, query
    assert {stage["indexName"] for stage in stages if "indexName" in stage} <= {name}
    if is_planner_mongodbs:
        assert "SORT" not in kinds, query
        limit = query.command.get("limit", 10)
        assert explained["executionStats"]["totalKeysExamined"] <= 2 * limit + 3


def stages_of(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    plan = plan.get("queryPlan", plan)
    yield plan
    for inner in [*plan.get("inputStages", []), *([plan["inputStage"]] if "inputStage" in plan else [])]:
        yield from stages_of(inner)


@pytest.mark.parametrize("name", TIMERS)
def test_timers_are_found_by_their_index(store: Store, single: Namespace, commands: Commands, name: str) -> None:
    action, expected = TIMERS[name]

    action(store, single)

    assert used(store, commands) == expected


LISTS: dict[str, tuple[CallFilter, str]] = {
    "all": (CallFilter(), "call_key"),
    "dates": (CallFilter(submitted_from=NOW, submitted_to=LATER), "call_key"),
    "status": (CallFilter(status=CallStatus.SCHEDULED), "call_status"),
    "tag": (CallFilter(tags=("a",)), "call_tag"),
    "starred": (CallFilter(starred=True), "call_starred"),
    "correlation": (CallFilter(correlation_id="corr-1"), "call_correlation"),
    "name": (CallFilter(name_prefix="r"), "call_name"),
    "due": (CallFilter(status=CallStatus.SCHEDULED, order=CallOrder.DUE, due_to=LATER), "call_due"),
}


@pytest.mark.parametrize("name", LISTS)
def test_a_list_walks_its_index(store: Store, commands: Commands, name: str) -> None:
    wanted, expected = LISTS[name]
    for number in range(6):
        steps.submit(store.calls, tags=("a", f"t{number}"), starred=True)
    commands.clear()

    page = store.calls.list(make.TENANT, wanted, cursor=None, limit=2, now=NOW)
    assert page.next_cursor is not None
    store.calls.list(make.TENANT, wanted, cursor=page.next_cursor, limit=2, now=NOW)

    assert used(store, commands) == {expected}


def test_calls_executions_and_events_are_found_by_their_keys(store: Store, commands: Commands) -> None:
    calls = store.calls
    call = steps.submit(calls, idempotency_key="k")
    other = steps.submit(calls)
    commands.clear()

    running = steps.begin(calls, call)
    done = steps.conclude(calls, running)
    calls.get([steps.ref(done), steps.ref(other)], now=NOW)
    calls.find_by_idempotency_key(make.TENANT, "k", now=NOW)
    calls.list_executions(make.TENANT, call.call_id, cursor=None, limit=2)
    calls.list_events(make.TENANT, call.call_id, after=1, limit=2)
    store.outbox.mark_published(store.outbox.unpublished(limit=3, skip=frozenset({steps.ref(other)})), now=NOW)
    store.outbox.unpublished_of(steps.ref(call), limit=3)
    calls.delete(make.TENANT, other.call_id, now=NOW)
    calls.prune(now=LATER + timedelta(days=1), events_published_before=LATER, limit=50)

    assert used(store, commands) == {
        "call_key",
        "call_idempotency",
        "call_expiry",
        "timer_lookup",
        "execution_key",
        "execution_number",
        "event_sequence",
        "event_unpublished",
        "event_published",
    }


def test_every_index_that_serves_a_tenant_begins_with_the_tenant(store: Store) -> None:
    housekeeping = {ID, "call_expiry", "event_published"}
    for collection in ("service_calls", "http_execution_log", "outbox"):
        for name, index in database_of(store)[collection].index_information().items():
            assert name in housekeeping or index["key"][0][0] == "tenant_id", name
