"""How SQLite runs the statements of service calls: each by the index that is meant for it, no scan, no sort."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from duetime.domain.service_calls import ServiceCall
from duetime.testing.contract import call_builders as make
from duetime.testing.contract import call_steps as steps
from tests.support.clock import NOW
from tests.support.sql_store import SqlStore
from tests.support.stores import image_of, memory_store
from tests.unit.sql.call_plans import LATER, LISTS, OTHERS, POINTS, TABLES, Action, fill
from tests.unit.sql.statements import query_plan, recorded_statements


@pytest.fixture(scope="module", params=["analysed", "not analysed"])
def image(request: pytest.FixtureRequest) -> bytes:
    """The planner knows how many rows there are, or does not."""
    with memory_store() as store:
        fill(store, calls_per_tenant=40)
        if request.param == "analysed":
            with store.database.engine.connect() as connection:
                connection.exec_driver_sql("ANALYZE")
                connection.commit()
        return image_of(store)


@pytest.fixture
def filled(image: bytes) -> Iterator[SqlStore]:
    with memory_store(image) as store:
        yield store


@pytest.fixture
def scheduled(filled: SqlStore) -> ServiceCall:
    return steps.submit(filled.calls, tags=("a", "b"), due_at=LATER, idempotency_key="mine")


def plans(store: SqlStore, call: ServiceCall, action: Action) -> list[list[str]]:
    """The plan of every statement that the action runs on these tables."""
    with recorded_statements(store) as statements:
        action(store, call)
    return [query_plan(store, each) for each in statements if any(table in each.sql for table in TABLES)]


@pytest.mark.parametrize("name", LISTS)
def test_a_list_walks_its_index(filled: SqlStore, scheduled: ServiceCall, name: str) -> None:
    action, expected = LISTS[name]

    found = plans(filled, scheduled, action)

    assert {step for each in found for step in each} == {f"SEARCH {step}" for step in expected}


@pytest.mark.parametrize("name", POINTS)
def test_a_read_or_write_finds_its_rows_by_key(filled: SqlStore, scheduled: ServiceCall, name: str) -> None:
    action, expected = POINTS[name]

    found = plans(filled, scheduled, action)

    assert {step for each in found for step in each} == {f"SEARCH {step}" for step in expected}


@pytest.mark.parametrize("name", OTHERS)
def test_no_statement_scans_or_sorts(filled: SqlStore, scheduled: ServiceCall, name: str) -> None:
    found = plans(filled, scheduled, OTHERS[name])

    assert found
    for each in found:
        assert not [step for step in each if step.startswith("SCAN") or "TEMP B-TREE" in step], each


def test_a_batch_takes_the_same_statements_however_large(filled: SqlStore) -> None:
    def statements_of(size: int) -> list[str]:
        submitted = [make.submitted(tags=("a", "b"), idempotency_key=make.id_at(NOW)) for _ in range(size)]
        with recorded_statements(filled) as statements:
            steps.applied(filled.calls, *submitted)
            begun = [make.begun(each.after) for each in submitted]
            steps.applied(filled.calls, *begun)
            ended = [make.concluded(each.after, each.executions[0]) for each in begun]
            steps.applied(filled.calls, *ended)
        return [statement.sql for statement in statements]

    assert statements_of(1) == statements_of(50)
    # Call, tags, timer, events; then twice call, timer, execution, events.
    assert len(statements_of(50)) == 12
