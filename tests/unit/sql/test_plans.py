"""How SQLite runs the statements: by index, no sort, no scan. So a million pending timers change no cost."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from duetime.domain.namespaces import Namespace
from duetime.domain.timers import TimerChange, TimerState
from duetime.stores.port.timers import PutMode, TimerFilter, TimerRef
from duetime.testing.contract.builders import RETENTION, failed, fired, leased, make_timer, make_timers, seconds
from duetime.testing.contract.steps import claim_shard
from tests.support.clock import NOW
from tests.support.sql_store import SqlStore
from tests.unit.sql.statements import query_plan, recorded_statements

PRIMARY_KEY = "sqlite_autoindex_timers_1"
LOOKUP = "idx_timer_lookup"

Action = Callable[[SqlStore, Namespace], object]


@pytest.fixture
def filled(store: SqlStore, single: Namespace) -> SqlStore:
    """Due timers with correlation ids, an unreadable one, finished and future ones, and a lease."""
    store.timers.put(make_timers(single, 40, correlation_id="c"), mode=PutMode.CREATE, now=NOW)
    # So many that looking through all of them is no way to find a few.
    later = make_timers(single, 400, prefix="later", execute_at=NOW + seconds(60))
    store.timers.put(later, mode=PutMode.CREATE, now=NOW)
    lease = claim_shard(store, 0, "w", lease_seconds=10, now=NOW)
    assert lease is not None
    due = store.timers.due(0, until=NOW, limit=10).timers
    store.timers.record(leased([fired(timer) for timer in due], lease), now=NOW)
    with store.database.engine.connect() as connection:
        connection.exec_driver_sql("ANALYZE")
        connection.commit()
    return store


def plans(store: SqlStore, single: Namespace, action: Action) -> list[list[str]]:
    """The plan of every statement that the action runs on the table ``timers``."""
    with recorded_statements(store) as statements:
        action(store, single)
    return [query_plan(store, each) for each in statements if "timers" in each.sql]


def record_a_due_timer(store: SqlStore, single: Namespace) -> None:
    lease = store.leases.renew(
        [claim_shard(store, 1, "w", lease_seconds=10, now=NOW)],  # type: ignore[list-item]
        lease_seconds=10,
        now=NOW,
    )[0]
    assert lease is not None
    outcomes = [failed(store.timers.due(0, until=NOW, limit=1).timers[0])]
    store.timers.record(leased(outcomes, lease), now=NOW)
    store.timers.record(leased(outcomes), now=NOW)
    store.leases.release([lease], now=NOW)


ACTIONS: dict[str, Action] = {
    "nothing due": lambda store, _: store.timers.due(0, until=NOW - seconds(1), limit=10),
    "nothing due in many": lambda store, _: store.timers.next_due(range(16), until=NOW),
    "due": lambda store, _: store.timers.due(0, until=NOW, limit=100),
    "due, next page": lambda store, _: store.timers.due(
        0, until=NOW, limit=100, cursor=store.timers.due(0, until=NOW, limit=10).cursor
    ),
    "leases and recording": record_a_due_timer,
    "statuses": lambda store, _: store.leases.statuses(range(8), now=NOW),
    "create": lambda store, single: store.timers.put(
        make_timers(single, 3, prefix="new"), mode=PutMode.CREATE, now=NOW
    ),
    "create again": lambda store, single: store.timers.put(
        [make_timer(single, "t0001")], mode=PutMode.CREATE, now=NOW
    ),
    "replace": lambda store, single: store.timers.put(make_timers(single, 3), mode=PutMode.REPLACE, now=NOW),
    "get": lambda store, single: store.timers.get(single, "t0001", now=NOW),
    "update": lambda store, single: store.timers.update(
        single, "t0039", TimerChange(execute_at=NOW), firing_id="f", now=NOW
    ),
    "delete": lambda store, single: store.timers.delete(single, [TimerRef("t0039")], now=NOW),
    "list": lambda store, single: store.timers.list(single, TimerFilter(), cursor=None, limit=10, now=NOW),
    "list, next page": lambda store, single: store.timers.list(
        single, TimerFilter(), cursor='[0,"t0003"]', limit=10, now=NOW
    ),
    "list with a filter": lambda store, single: store.timers.list(
        single, TimerFilter(state=TimerState.FIRED, tag="x"), cursor=None, limit=10, now=NOW
    ),
    "correlation": lambda store, single: store.timers.find_by_correlation(
        single, "c", cursor=None, limit=10, now=NOW
    ),
    "correlation, next page": lambda store, single: store.timers.find_by_correlation(
        single, "c", cursor='["t0003"]', limit=10, now=NOW
    ),
    "prune": lambda store, _: store.timers.prune(now=NOW + RETENTION, limit=5),
}


CATALOGUE_ACTIONS: dict[str, tuple[Action, str]] = {
    "get namespace": (
        lambda store, _: store.catalogue.get_namespace("single"),
        "SEARCH namespaces USING INDEX sqlite_autoindex_namespaces_1 (namespace_name=?)",
    ),
    "list namespaces": (
        lambda store, _: store.catalogue.list_namespaces(cursor='["a"]', limit=5),
        "SEARCH namespaces USING INDEX idx_namespace_list (is_internal=? AND namespace_name>?)",
    ),
    "list a tenant's namespaces": (
        lambda store, _: store.catalogue.list_namespaces(cursor='["a"]', limit=5, tenant_id="acme"),
        "SEARCH namespaces USING INDEX idx_namespace_tenant (tenant_id=? AND is_internal=? AND namespace_name>?)",
    ),
    "get API key": (
        lambda store, _: store.catalogue.get_api_key("k1"),
        "SEARCH api_keys USING INDEX sqlite_autoindex_api_keys_1 (key_id=?)",
    ),
    "list API keys": (
        lambda store, _: store.catalogue.list_api_keys("acme", cursor='["k1"]', limit=5),
        "SEARCH api_keys USING INDEX idx_api_key_tenant (tenant_id=? AND key_id>?)",
    ),
    "delete API key": (
        lambda store, _: store.catalogue.delete_api_key("acme", "k1"),
        "SEARCH api_keys USING INDEX sqlite_autoindex_api_keys_1 (key_id=?)",  # unique; the tenant is compared
    ),
}


@pytest.mark.parametrize("name", CATALOGUE_ACTIONS)
def test_the_catalogue_is_searched_by_name_tenant_and_key(store: SqlStore, single: Namespace, name: str) -> None:
    action, wanted = CATALOGUE_ACTIONS[name]
    with recorded_statements(store) as statements:
        action(store, single)

    (steps,) = [plan for each in statements if (plan := query_plan(store, each))]
    assert steps == [wanted]


@pytest.mark.parametrize("name", ACTIONS)
def test_every_statement_searches_by_index(filled: SqlStore, single: Namespace, name: str) -> None:
    found = plans(filled, single, ACTIONS[name])

    assert found
    for steps in found:
        assert not [step for step in steps if step.startswith("SCAN") or "TEMP B-TREE" in step], steps


def test_looking_for_what_comes_after_a_page_reads_the_index_alone(filled: SqlStore, single: Namespace) -> None:
    *_, steps = plans(filled, single, ACTIONS["due"])

    wanted = "(shard_id=? AND row_type=? AND timer_execute_at>? AND timer_execute_at<?)"
    assert steps == [f"SEARCH timers USING COVERING INDEX {PRIMARY_KEY} {wanted}"]


def test_due_timers_are_a_range_of_the_primary_key(filled: SqlStore, single: Namespace) -> None:
    found = plans(filled, single, ACTIONS["due, next page"])

    wanted = f"SEARCH timers USING INDEX {PRIMARY_KEY} (shard_id=? AND row_type=? AND timer_execute_at"
    assert [f"{wanted}=? AND timer_uuid>?)"] in found
    assert [f"{wanted}>? AND timer_execute_at<?)"] in found


def test_recording_finds_each_row_by_the_whole_primary_key(filled: SqlStore, single: Namespace) -> None:
    found = plans(filled, single, ACTIONS["leases and recording"])

    wanted = "(shard_id=? AND row_type=? AND timer_execute_at=? AND timer_uuid=?)"
    assert [f"SEARCH timers USING INDEX {PRIMARY_KEY} {wanted}"] in found


@pytest.mark.parametrize("name", ["get", "update", "delete", "create again", "replace"])
def test_clients_find_a_timer_by_its_id(filled: SqlStore, single: Namespace, name: str) -> None:
    found = [steps for steps in plans(filled, single, ACTIONS[name]) if steps]

    wanted = "(timer_namespace=? AND shard_id=? AND timer_id=?)"
    assert found
    assert all(steps == [f"SEARCH timers USING INDEX {LOOKUP} {wanted}"] for steps in found)


def test_a_list_walks_the_lookup_index(filled: SqlStore, single: Namespace) -> None:
    found = plans(filled, single, ACTIONS["list, next page"])

    assert found == [
        [f"SEARCH timers USING INDEX {LOOKUP} (timer_namespace=? AND shard_id=? AND timer_id>?)"],
    ]


def test_correlation_and_expiry_have_indexes_of_their_own(filled: SqlStore, single: Namespace) -> None:
    first = plans(filled, single, ACTIONS["correlation"])
    second = plans(filled, single, ACTIONS["correlation, next page"])
    prune = plans(filled, single, ACTIONS["prune"])

    wanted = "timer_namespace=? AND timer_correlation_id=?"
    assert first == [[f"SEARCH timers USING INDEX idx_timer_correlation ({wanted})"]]
    assert second == [[f"SEARCH timers USING INDEX idx_timer_correlation ({wanted} AND timer_id>?)"]]
    assert ["SEARCH timers USING INDEX idx_timer_expiry (timer_expires_at>? AND timer_expires_at<?)"] in prune


def test_owners_of_many_shards_are_found_by_key_while_sqlite_knows_no_statistics(store: SqlStore) -> None:
    """The store never has them made."""
    namespace = store.catalogue.create_namespace("many", num_shards=64, dedicated=False, now=NOW)[0]
    claimed = [claim_shard(store, shard, "w", lease_seconds=10, now=NOW) for shard in range(64)]
    leases = {lease.shard_id: lease for lease in claimed if lease}
    store.timers.put(make_timers(namespace, 200), mode=PutMode.CREATE, now=NOW)
    due = [timer for shard in range(64) for timer in store.timers.due(shard, until=NOW, limit=1).timers]

    def share(store: SqlStore, _: Namespace) -> None:
        store.leases.statuses(range(64), now=NOW)
        store.timers.record(leased([fired(timer) for timer in due], *leases.values()), now=NOW)

    for steps in plans(store, namespace, share):
        assert all(step.startswith(f"SEARCH timers USING INDEX {PRIMARY_KEY}") for step in steps), steps
