"""Bytes that are no UTF-8, which SQLite keeps in any TEXT column: they make their own row unreadable and no other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa

from duetime.api.http.responses import encode
from duetime.api.service_calls.responses import call_response
from duetime.api.timers.responses import timer_response
from duetime.domain.api_keys import ApiKey, hash_of
from duetime.domain.namespaces import Namespace
from duetime.domain.principals import Role
from duetime.domain.retry import DEFAULT_RETRY_POLICY
from duetime.domain.service_calls import CallFailure, CallStatus
from duetime.domain.timers import FailureReason, Timer
from duetime.stores.backends.sql.call_tables import http_execution_log, outbox, service_calls
from duetime.stores.backends.sql.tables import api_keys, namespaces, timers, workers
from duetime.stores.decoding import is_text, is_whole
from duetime.stores.port.calls import CallFilter, CallOrder, CallRef
from duetime.stores.port.timers import IsWanted, PutMode, PutStatus, TimerFilter
from duetime.testing.contract import call_builders as make
from duetime.testing.contract import call_steps as steps
from duetime.testing.contract.builders import RETENTION, make_timer
from duetime.testing.contract.steps import claim, create, read_all
from tests.contract.sql_stores import open_sql
from tests.support.clock import NOW
from tests.support.sql_store import SqlStore
from tests.support.transfer import exported, fill

BROKEN = sa.cast(sa.literal(b"caf\xe9 \xff", sa.LargeBinary), sa.Text)

Column = Any


@pytest.fixture
def store() -> Iterator[SqlStore]:
    store = open_sql("sqlite://")
    store.initialise()
    yield store
    store.close()


@pytest.fixture
def single(store: SqlStore) -> Namespace:
    return store.catalogue.create_namespace("single", num_shards=1, dedicated=False, now=NOW)[0]


def replace_text(store: SqlStore, column: Column, value: Any, *conditions: Any) -> None:
    with store.database.engine.connect() as connection:
        for pragma in ("ignore_check_constraints = ON", "foreign_keys = OFF"):
            connection.exec_driver_sql(f"PRAGMA {pragma}")
        changed = connection.execute(sa.update(column.table).where(*conditions).values({column: value}))
        for pragma in ("ignore_check_constraints = OFF", "foreign_keys = ON"):
            connection.exec_driver_sql(f"PRAGMA {pragma}")
    assert changed.rowcount == 1


@contextmanager
def damaged(store: SqlStore, column: Column, *conditions: Any) -> Iterator[None]:
    """One row has such bytes in ``column``, until the end."""
    with store.database.engine.connect() as connection:
        before = connection.execute(sa.select(column).where(*conditions)).scalar_one()
    replace_text(store, column, BROKEN, *conditions)
    try:
        yield
    finally:
        replace_text(store, column, before, column == BROKEN)


def texts_of(table: sa.Table, *without: str) -> list[Column]:
    return [column for column in table.columns if isinstance(column.type, sa.String) and column.name not in without]


# -- timers -------------------------------------------------------------------------------------------------------

OF_TIMERS = [column for column in texts_of(timers) if column.name.startswith("timer_")]
IS_B = timers.c.timer_id == "b"


@pytest.fixture
def three(store: SqlStore, single: Namespace) -> list[Timer]:
    fields: dict[str, Any] = {"payload_json": '"p"', "headers_json": "{}", "tags": ("t",), "correlation_id": "c"}
    return create(store, *(make_timer(single, name, **fields) for name in "abc"))


def polled(store: SqlStore, limit: int, is_wanted: IsWanted | None = None) -> tuple[list[str], int]:
    """The ids of all due timers, and how many rows cannot be read."""
    found: list[str] = []
    unreadable, cursor = 0, None
    for _ in range(10):
        page = store.timers.due(0, until=NOW, limit=limit, cursor=cursor, is_wanted=is_wanted)
        assert is_whole(page)
        found += [timer.timer_id for timer in page.timers]
        unreadable += len(page.unreadable)
        cursor = page.cursor
        if cursor is None:
            return sorted(found), unreadable
    raise AssertionError("the pages have no end")


@pytest.mark.parametrize("limit", [1, 10])
def test_it_is_never_handed_out_and_the_others_are(store: SqlStore, three: list[Timer], limit: int) -> None:
    for column in OF_TIMERS:
        with damaged(store, column, IS_B):
            assert polled(store, limit) == (["a", "c"], 1), column

    assert polled(store, limit) == (["a", "b", "c"], 0)


@pytest.mark.parametrize("column", [timers.c.timer_namespace, timers.c.timer_callback_url], ids=str)
def test_it_is_in_nobodys_way_where_not_all_are_wanted(store: SqlStore, three: list[Timer], column: Column) -> None:
    with damaged(store, column, IS_B):
        assert polled(store, 10, lambda _namespace, _url: True) == (["a", "c"], 1)
        assert polled(store, 10, lambda namespace, url: is_text(namespace) and is_text(url)) == (["a", "c"], 0)


@pytest.mark.parametrize("column", [timers.c.timer_id, timers.c.timer_namespace, timers.c.timer_payload], ids=str)
def test_it_is_quarantined_and_expires(store: SqlStore, three: list[Timer], column: Column) -> None:
    replace_text(store, column, BROKEN, IS_B)

    store.timers.quarantine(store.timers.due(0, until=NOW, limit=10).unreadable, now=NOW, expires_at=NOW + RETENTION)

    assert polled(store, 10) == (["a", "c"], 0)
    assert store.timers.prune(now=NOW + RETENTION, limit=5) == 1


@pytest.mark.parametrize("limit", [1, 2, 10])
@pytest.mark.parametrize("timer_filter", [TimerFilter(), TimerFilter(due_to=NOW + RETENTION)], ids=["all", "some"])
def test_lists_show_it_as_unreadable_with_all_the_others(
    store: SqlStore, single: Namespace, three: list[Timer], timer_filter: TimerFilter, limit: int
) -> None:
    for column in OF_TIMERS:
        with damaged(store, column, IS_B):
            listed = read_all(
                lambda cursor: store.timers.list(single, timer_filter, cursor=cursor, limit=limit, now=NOW)
            )

        failures = [timer.failure for timer in listed if timer.failure is not None]
        is_in_namespace = column is not timers.c.timer_namespace
        assert [timer.timer_id for timer in listed if timer.failure is None] == ["a", "c"], column
        assert [failure.reason for failure in failures] == [FailureReason.UNREADABLE] * is_in_namespace, column
        assert is_whole(tuple(listed)), column
        for timer in listed:
            json.loads(encode(timer_response(timer, DEFAULT_RETRY_POLICY)).encode())


def test_a_search_by_correlation_finds_the_others(store: SqlStore, single: Namespace, three: list[Timer]) -> None:
    for column in OF_TIMERS:
        with damaged(store, column, IS_B):
            found = read_all(
                lambda cursor: store.timers.find_by_correlation(single, "c", cursor=cursor, limit=1, now=NOW)
            )

        assert is_whole(tuple(found))
        assert [timer.timer_id for timer in found if timer.failure is None] == ["a", "c"], column


def test_what_was_read_before_and_what_comes_behind_stays_in_order(store: SqlStore, single: Namespace) -> None:
    ids = [f"{number:03}" for number in range(100)]
    create(store, *(make_timer(single, timer_id) for timer_id in ids))
    bad = ["000", "017", "018", "099"]
    for timer_id in bad:
        replace_text(store, timers.c.timer_callback_url, BROKEN, timers.c.timer_id == timer_id)

    listed = store.timers.list(single, TimerFilter(), cursor=None, limit=100, now=NOW).items

    assert [timer.timer_id for timer in listed] == ids
    assert [timer.timer_id for timer in listed if timer.failure is not None] == bad


def test_what_stands_for_such_bytes_is_no_way_to_store_them(store: SqlStore, single: Namespace) -> None:
    (result,) = store.timers.put([make_timer(single, correlation_id="caf\udce9")], mode=PutMode.CREATE, now=NOW)

    assert result.status is PutStatus.REFUSED
    assert store.timers.list(single, TimerFilter(), cursor=None, limit=5, now=NOW).items == []


# -- service calls ------------------------------------------------------------------------------------------------

IS_CALL_B = service_calls.c.service_call_id == "b"


@pytest.fixture
def ran(store: SqlStore) -> None:
    """Three calls that have run once."""
    for call_id in "abc":
        fields: dict[str, Any] = {"headers_json": "{}", "retry_policy_json": "{}", "rerun_of": "0"}
        call = make.submitted(call_id=call_id, tags=("t",), idempotency_key=call_id, **fields)
        steps.run(store.calls, steps.applied(store.calls, call))


@pytest.mark.parametrize(
    "call_filter",
    [CallFilter(), CallFilter(tags=("t",)), CallFilter(name_prefix=""), CallFilter(correlation_id="corr-1")],
    ids=["all", "tagged", "named", "correlated"],
)
def test_lists_of_calls_go_on(store: SqlStore, ran: None, call_filter: CallFilter) -> None:
    for column in texts_of(service_calls, "request_body"):  # which no list reads
        with damaged(store, column, IS_CALL_B):
            listed = read_all(
                lambda cursor: store.calls.list(make.TENANT, call_filter, cursor=cursor, limit=1, now=NOW)
            )

        shown = [json.loads(encode(call_response(call)).encode()) for call in listed]
        assert is_whole(tuple(listed)), column
        assert {call["id"] for call in shown if call["status"] == "Succeeded"} == {"a", "c"}, column


def test_lists_by_due_time_go_on(store: SqlStore) -> None:
    for call_id in "abc":
        steps.submit(store.calls, call_id=call_id)
    by_due = CallFilter(status=CallStatus.SCHEDULED, order=CallOrder.DUE)
    with damaged(store, service_calls.c.due_at, IS_CALL_B):
        listed = read_all(lambda cursor: store.calls.list(make.TENANT, by_due, cursor=cursor, limit=1, now=NOW))

    assert [call.call_id for call in listed] == ["a", "c", "b"]
    assert [call.status for call in listed] == [CallStatus.SCHEDULED, CallStatus.SCHEDULED, CallStatus.FAILED]


def test_the_others_are_read_by_their_ids(store: SqlStore, ran: None) -> None:
    for column in texts_of(service_calls):
        with damaged(store, column, IS_CALL_B):
            found = store.calls.get([CallRef(make.TENANT, "a"), CallRef(make.TENANT, "c")], now=NOW)

        assert [call.call_id for call in found if call is not None] == ["a", "c"], column


def test_an_execution_is_shown_as_unreadable(store: SqlStore, ran: None) -> None:
    of_b = http_execution_log.c.service_call_id == "b"
    for column in texts_of(http_execution_log, "tenant_id", "service_call_id"):
        with damaged(store, column, of_b):
            (shown,) = store.calls.list_executions(make.TENANT, "b", cursor=None, limit=5).items

        assert is_whole(shown), column
        assert shown.failure is CallFailure.UNREADABLE, column


def test_an_event_holds_up_its_own_call_alone(store: SqlStore, ran: None, caplog: pytest.LogCaptureFixture) -> None:
    first_of_b = (outbox.c.aggregate_id == "b", outbox.c.event_sequence == 1)
    for column in texts_of(outbox, "created_at", "published_at"):
        with damaged(store, column, *first_of_b):
            told = [each.event for each in store.outbox.unpublished(limit=50)]
            pages: list[Any] = []
            while not pages or pages[-1].next_cursor is not None:
                cursor = pages[-1].next_cursor if pages else None
                pages.append(store.transfer.all_events(cursor=cursor, limit=1))

        assert {("a", 1), ("a", 2), ("c", 1), ("c", 2)} <= {(event.aggregate_id, event.sequence) for event in told}
        assert is_whole((tuple(told), tuple(pages))), column
        assert sum(len(page.unreadable) for page in pages) == 1, column
    assert all(is_whole(str(record.__dict__)) for record in caplog.records)


def test_calls_whose_ids_are_damaged_expire_with_the_others(store: SqlStore, ran: None) -> None:
    replace_text(store, service_calls.c.service_call_id, BROKEN, IS_CALL_B)

    for _ in range(5):
        store.calls.prune(now=NOW + 400 * RETENTION, events_published_before=NOW, limit=10)

    assert store.calls.list(make.TENANT, CallFilter(), cursor=None, limit=5, now=NOW).items == []


# -- the catalogue ------------------------------------------------------------------------------------------------


def test_a_namespace_hides_no_other(store: SqlStore) -> None:
    for name in "abc":
        store.catalogue.create_namespace(name, num_shards=1, dedicated=False, now=NOW)
    for column in texts_of(namespaces, "tenant_id"):
        with damaged(store, column, namespaces.c.namespace_name == "b"):
            of_all = read_all(lambda cursor: store.catalogue.list_namespaces(cursor=cursor, limit=1))
            of_one = read_all(
                lambda cursor: store.catalogue.list_namespaces(cursor=cursor, limit=1, tenant_id="default")
            )

        for listed in (of_all, of_one):
            assert is_whole(tuple(listed))
            assert [each.name for each in listed if each.unreadable is None] == ["a", "c"], column
            assert len(listed) == 3


def test_a_key_hides_no_other(store: SqlStore) -> None:
    for key_id in "abc":
        key = ApiKey(key_id=key_id, tenant_id="acme", role=Role.READER, secret_hash=hash_of("s"), created_at=NOW)
        assert store.catalogue.create_api_key(key)
    for column in texts_of(api_keys, "tenant_id"):
        with damaged(store, column, api_keys.c.key_id == "b"):
            listed = read_all(lambda cursor: store.catalogue.list_api_keys("acme", cursor=cursor, limit=1))

        assert is_whole(tuple(listed))
        assert [each.key_id for each in listed if each.unreadable is None] == ["a", "c"], column
        assert len(listed) == 3


def test_a_shard_is_nobodys_and_hides_no_other(store: SqlStore) -> None:
    for shard_id in range(3):
        claim(store, shard_id)
    replace_text(store, timers.c.shard_owner_id, BROKEN, timers.c.row_type == 1, timers.c.shard_id == 1)

    statuses = store.leases.statuses([0, 1, 2], now=NOW)

    assert is_whole(tuple(statuses))
    assert [status.owner_id for status in statuses] == ["w1", None, "w1"]
    assert not statuses[1].is_free


def test_a_worker_is_forgotten_at_its_time(store: SqlStore) -> None:
    store.leases.announce_worker("v", ttl_seconds=10, now=NOW)
    replace_text(store, workers.c.worker_id, BROKEN, workers.c.worker_id == "v")

    announced = store.leases.announce_worker("w", ttl_seconds=1000, now=NOW)
    store.leases.announce_worker("w", ttl_seconds=1000, now=NOW + RETENTION)

    assert len(announced) == 2
    assert is_whole(tuple(announced))
    assert store.leases.announce_worker("w", ttl_seconds=1000, now=NOW) == ["w"]


# -- export -------------------------------------------------------------------------------------------------------


def test_an_export_names_it_and_has_all_the_others(store: SqlStore) -> None:
    fill(store, timers=600)  # more than one page, so that pages end in the midst
    before = exported(store).splitlines()
    id_of_page_end = [timer.timer_id for timer in _first_page(store)][-1]
    is_page_end = timers.c.timer_id == id_of_page_end
    log, first = http_execution_log.c, outbox.c.event_sequence == 1
    with store.database.engine.connect() as connection:
        call_id = connection.execute(sa.select(sa.func.min(log.service_call_id))).scalar_one()

    def of_call(table: sa.Table, id_name: str = "service_call_id") -> Any:
        return sa.and_(table.c[id_name] == call_id, table.c.tenant_id == "acme")

    is_event = sa.and_(of_call(outbox, "aggregate_id"), first)
    rows: list[tuple[Column, str, Any]] = [
        (timers.c.timer_id, "timer", is_page_end),
        (timers.c.timer_payload, "timer", is_page_end),
        (service_calls.c.name, "serviceCall", of_call(service_calls)),
        (service_calls.c.service_call_id, "serviceCall", of_call(service_calls)),
        (log.request_url, "execution", sa.and_(of_call(http_execution_log), log.execution_number == 1)),
        (outbox.c.event_payload, "event", is_event),
        (outbox.c.aggregate_id, "event", is_event),
    ]
    for column, kind, condition in rows:
        with damaged(store, column, condition):
            lines = exported(store).splitlines()

        named = [line for line in map(json.loads, lines) if line["kind"] == "unreadable"]
        assert [line["of"] for line in named] == [kind], column
        gone = set(_records(before)) - set(_records(lines))
        assert len(gone) == {"serviceCall": 1 + _executions_of(before, call_id)}.get(kind, 1), column


def _first_page(store: SqlStore) -> list[Timer]:
    namespace = store.catalogue.get_namespace("orders")
    assert namespace is not None
    return store.timers.list(namespace, TimerFilter(), cursor=None, limit=500, now=NOW).items


def _records(lines: list[bytes]) -> list[bytes]:
    return [line for line in lines if not line.startswith((b'{"kind":"checkpoint"', b'{"kind":"trailer"'))]


def _executions_of(lines: list[bytes], call_id: str) -> int:
    executions = [line for line in map(json.loads, lines) if line["kind"] == "execution"]
    return sum((line["tenantId"], line["callId"]) == ("acme", call_id) for line in executions)
