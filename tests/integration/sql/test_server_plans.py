"""How real servers run the hot statements: by index, in one partition where the shard is known, without a sort."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial

import pytest

from duetime.domain.namespaces import Namespace
from duetime.domain.timers import Rearm, TimerChange
from duetime.stores.port.timers import PutMode, TimerFilter, TimerRef
from duetime.testing.contract.builders import failed, fired, leased, make_timer, make_timers, seconds
from duetime.testing.contract.steps import claim_shard
from tests.integration.sql.server_plans import analyse, plans
from tests.support.clock import NOW
from tests.support.sql_store import SqlStore

Action = Callable[[SqlStore, Namespace], object]


def record(store: SqlStore, single: Namespace) -> None:
    lease = claim_shard(store, 0, "w2", lease_seconds=10, now=NOW + seconds(3600))
    assert lease is not None
    due = store.timers.due(0, until=NOW, limit=2).timers
    assert len(due) == 2
    store.timers.record(leased([fired(due[0]), failed(due[1])], lease), now=NOW)
    store.leases.renew([lease], lease_seconds=10, now=NOW)
    store.leases.release([lease], now=NOW)


def prune(store: SqlStore, _: Namespace) -> None:
    assert store.timers.prune(now=NOW + timedelta(days=365), limit=10) == 10


def share(store: SqlStore, _: Namespace) -> None:
    """What a worker with several shards does: their owners are read, renewed and checked together."""
    claimed = [claim_shard(store, shard, "w3", lease_seconds=10, now=NOW + seconds(7200)) for shard in range(1, 8)]
    leases = {lease.shard_id: lease for lease in claimed if lease}
    assert len(leases) == 7
    store.leases.statuses(range(8), now=NOW)
    store.leases.renew(list(leases.values()), lease_seconds=10, now=NOW)
    due = [each for shard in leases for each in store.timers.due(shard, until=NOW + seconds(60), limit=1).timers]
    assert len(due) > 1
    store.timers.record(leased([fired(timer) for timer in due], *leases.values()), now=NOW)


def refs(*numbers: int) -> list[TimerRef]:
    return [TimerRef(f"t{number:04}") for number in numbers]


EVERYWHERE = ("list", "prune", "correlation", "several shards")
"""What goes on to other shards: a list after its cursor's, the others to whichever have such timers."""
ACTIONS: dict[str, Action] = {
    "nothing due": lambda store, _: store.timers.due(0, until=NOW - seconds(60), limit=5),
    "nothing due in many": lambda store, _: store.timers.next_due([0] * 16, until=NOW),
    "due": lambda store, _: store.timers.due(0, until=NOW, limit=5),
    "due, next page": lambda store, _: store.timers.due(
        0, until=NOW, limit=5, cursor=store.timers.due(0, until=NOW, limit=5).cursor
    ),
    "leases and recording": record,
    "several shards": share,
    "get": lambda store, single: store.timers.get(single, "t0001", now=NOW),
    "create": lambda store, single: store.timers.put([make_timer(single, "new")], mode=PutMode.CREATE, now=NOW),
    "replace": lambda store, single: store.timers.put(make_timers(single, 5), mode=PutMode.REPLACE, now=NOW),
    "update": lambda store, single: store.timers.update(
        single, "t0002", TimerChange(correlation_id="x"), firing_id="f", now=NOW
    ),
    "delete": lambda store, single: store.timers.delete(single, refs(3, 33), now=NOW),
    "rearm": lambda store, single: store.timers.rearm(single, refs(4, 5), rearm=Rearm.FIRE, now=NOW),
    "correlation": lambda store, single: store.timers.find_by_correlation(
        single, "c500", cursor=None, limit=5, now=NOW
    ),
    "prune": prune,
    "list": lambda store, single: [
        store.timers.list(single, TimerFilter(), cursor=cursor, limit=10, now=NOW)
        for cursor in (None, store.timers.list(single, TimerFilter(), cursor=None, limit=3, now=NOW).next_cursor)
    ],
}


@pytest.fixture
def filled(server_store: SqlStore, single: Namespace) -> SqlStore:
    """Thousands of timers in two namespaces and on several shards, so that a scan would cost more than an index."""
    others = server_store.catalogue.create_namespace("others", num_shards=8, dedicated=False, now=NOW)[0]
    claimed = [claim_shard(server_store, shard, "w", lease_seconds=10, now=NOW) for shard in others.shard_ids()]
    leases = {lease.shard_id: lease for lease in claimed if lease}
    later = NOW + seconds(60)
    for start in range(0, 6000, 500):
        correlated = make_timers(others, 500, prefix=f"o{start}-", execute_at=later, correlation_id=f"c{start}")
        server_store.timers.put(correlated, mode=PutMode.CREATE, now=NOW)
        if start % 1000:
            server_store.timers.record(leased([fired(timer) for timer in correlated], *leases.values()), now=NOW)
    for start in range(0, 2000, 500):
        more = make_timers(single, 500, prefix=f"later{start}-", execute_at=later, correlation_id=f"c{start}")
        server_store.timers.put(more, mode=PutMode.CREATE, now=NOW)
    server_store.timers.put(make_timers(single, 40), mode=PutMode.CREATE, now=NOW)
    analyse(server_store, ["timers"])
    return server_store


def test_hot_statements_search_by_index_in_one_partition(filled: SqlStore, single: Namespace) -> None:
    """One test for all of them, since it is the rows that take the time."""
    problems = []
    for name, action in ACTIONS.items():
        found = plans(filled, ["timers"], partial(action, filled, single))
        assert found or name == "create", name
        for plan in found:
            problems += [f"{name}: {problem}" for problem in plan.problems()]
            partitions = {step.partitions for step in plan.steps if step.partitions}
            # None where the server has looked, and the row is gone.
            if name not in EVERYWHERE and (len(partitions) > 1 or any("," in each for each in partitions)):
                problems.append(f"{name}: {plan.sql}\nreads {partitions}")

    assert not problems, "\n".join(problems)


@pytest.mark.parametrize(("number", "is_analysed"), [(3, True), (300, False)])
def test_outcomes_find_their_rows_by_a_whole_key_while_the_table_is_small(
    server_store: SqlStore, single: Namespace, number: int, is_analysed: bool
) -> None:
    """PostgreSQL keeps to that plan as the table grows."""
    if server_store.database.engine.dialect.name != "postgresql":
        pytest.skip("only PostgreSQL keeps its plans")
    server_store.timers.put(make_timers(single, number), mode=PutMode.CREATE, now=NOW)
    if is_analysed:
        analyse(server_store, ["timers"])

    found = plans(server_store, ["timers"], partial(record, server_store, single))

    conditions = [
        step.condition
        for plan in found
        if plan.sql.startswith("UPDATE timers SET row_type")
        for step in plan.steps
        if step.condition
    ]
    assert conditions
    assert all("timer_uuid" in each or "timer_id" in each for each in conditions), conditions
