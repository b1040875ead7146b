"""How real servers run the statements of service calls: by index, without a sort."""

from __future__ import annotations

from functools import partial

from duetime.testing.contract import call_steps as steps
from tests.integration.sql.server_plans import analyse, plans
from tests.support.sql_store import SqlStore
from tests.unit.sql.call_plans import LATER, LISTS, OTHERS, POINTS, TABLES, fill

CALLS_PER_TENANT = 2500
"""So many that a scan would cost more than an index."""


def test_every_statement_of_service_calls_searches_by_index(server_store: SqlStore) -> None:
    """One test for all of them, since it is the rows that take the time."""
    fill(server_store, calls_per_tenant=CALLS_PER_TENANT)
    steps.submit(server_store.calls, idempotency_key="mine")
    analyse(server_store, TABLES)
    actions = {name: action for name, (action, _) in (LISTS | POINTS).items()} | OTHERS

    problems = []
    for name, action in actions.items():
        call = steps.submit(
            server_store.calls, tags=("a", "b"), due_at=LATER, idempotency_key=f"plan {name}", correlation_id="corr-1"
        )
        found = plans(server_store, TABLES, partial(action, server_store, call))
        assert found, name
        problems += [f"{name}: {problem}" for plan in found for problem in plan.problems()]

    assert not problems, "\n".join(problems)
