"""A value that is damaged, in any field of any row: that row is reported as unreadable, and others are served."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest

from duetime.domain.api_keys import ApiKey, hash_of
from duetime.domain.errors import DuetimeError, StoreError
from duetime.domain.idempotency import IdempotencyRecord
from duetime.domain.ids import schedule_timer_id
from duetime.domain.namespaces import Namespace
from duetime.domain.outcomes import RecordStatus
from duetime.domain.principals import Role
from duetime.domain.service_calls import ServiceCall
from duetime.domain.timers import Rearm, TimerChange
from duetime.stores.core.store import Store
from duetime.stores.entities import (
    API_KEY,
    COUNTER,
    ENTITIES,
    EVENT,
    EXECUTION,
    IDEMPOTENCY_RECORD,
    NAMESPACE,
    OCCURRENCE,
    SECRET,
    SERVICE_CALL,
    SHARD,
    TIMER,
    WORKER,
)
from duetime.stores.entity import DAMAGED, Entity, Key, Value
from duetime.stores.entity import Kind as FieldKind
from duetime.stores.port.calls import CallFilter, CallRef
from duetime.stores.port.timers import PutMode, TimerFilter, TimerRef
from duetime.testing.contract import call_builders as make
from duetime.testing.contract import call_steps as steps
from duetime.testing.contract.builders import RETENTION, fired, make_timer
from duetime.testing.contract.schedules import after, make_schedule
from duetime.testing.contract.steps import claim, create, record, stored
from duetime.transfer.records import CatalogueSecret, Kind, Unreadable
from duetime.transfer.scan import StoreScan
from tests.support.clock import NOW
from tests.support.dictionary import DictionaryBackend

LATER = NOW + 3 * RETENTION
UNREAL: dict[FieldKind, Value] = {
    FieldKind.TEXT: "caf\udce9",
    FieldKind.LONG_TEXT: '{"caf\udce9"',
    FieldKind.WHOLE: -(2**62),
    FieldKind.INSTANT: 2**62,
    FieldKind.FLAG: DAMAGED,
    FieldKind.BYTES: b"",
    FieldKind.TEXTS: ("caf\udce9",),
}
"""What is of a field's type and nothing that could be meant."""


@dataclass
class Contents:
    """A store with one row of each entity that will be damaged (``keys``), and a sound one of most."""

    backend: DictionaryBackend
    store: Store
    namespace: Namespace
    call: ServiceCall
    keys: dict[str, Key]

    def damage(self, entity: Entity, field: str, value: Value) -> None:
        self.backend.damage(entity, self.keys[entity.name], **{field: value})


@pytest.fixture
def contents() -> Contents:
    backend = DictionaryBackend()
    store = Store(backend)
    catalogue = store.catalogue
    bad = catalogue.create_namespace("bad", num_shards=1, dedicated=False, now=NOW)[0]
    catalogue.create_namespace("good", num_shards=1, dedicated=False, now=NOW)
    for key_id in ("bad", "good"):
        assert catalogue.create_api_key(
            ApiKey(key_id=key_id, tenant_id="acme", role=Role.ADMIN, secret_hash=hash_of("s"), created_at=NOW)
        )
        catalogue.secret(key_id, b"s")
        catalogue.put_idempotency_record(record_of(key_id), now=NOW)
        store.leases.announce_worker(key_id, ttl_seconds=10, now=NOW)
    create(store, *(make_timer(bad, name, correlation_id="c", tags=("a",)) for name in ("bad", "good")))
    calls = [steps.run(store.calls, steps.submit(store.calls, num_shards=1, tags=("a",))) for _ in range(2)]
    (schedule,) = create(store, make_schedule(bad))
    assert record(store, [after(fired(schedule))], claim(store)) == [RecordStatus.APPLIED]
    execution = store.calls.list_executions(calls[0].tenant_id, calls[0].call_id, cursor=None, limit=1).items[0]
    keys: dict[str, Key] = {
        TIMER.name: (0, "bad", "bad"),
        OCCURRENCE.name: (0, "bad", schedule.timer_id, 1),
        SHARD.name: (0,),
        WORKER.name: ("bad",),
        NAMESPACE.name: ("bad",),
        COUNTER.name: ("shared_shards",),
        SECRET.name: ("bad",),
        API_KEY.name: ("bad",),
        IDEMPOTENCY_RECORD.name: ("bad",),
        SERVICE_CALL.name: (calls[0].tenant_id, calls[0].call_id),
        EXECUTION.name: (calls[0].tenant_id, calls[0].call_id, execution.execution_id),
        EVENT.name: (calls[0].tenant_id, calls[0].call_id, 2),
    }
    return Contents(backend, store, bad, calls[0], keys)


def record_of(key: str, *, claim_id: str = "mine") -> IdempotencyRecord:
    return IdempotencyRecord(key=key, claim_id=claim_id, content="{}", expires_at=NOW + RETENTION)


def listed(read: Callable[..., Any]) -> list[Any]:
    """All items of a paged list, one by one."""
    items, cursor = [], None
    for _ in range(99):
        page = read(cursor=cursor, limit=1)
        items += page.items
        cursor = page.next_cursor
        if cursor is None:
            return items
    raise AssertionError("the pages have no end")


def operations_of(contents: Contents) -> Iterator[Callable[[], object]]:
    """Everything that the port can do with what is there; what removes is last."""
    store, namespace, call = contents.store, contents.namespace, contents.call
    catalogue, timers, calls, transfer = store.catalogue, store.timers, store.calls, store.transfer
    tenant, ref = call.tenant_id, CallRef(call.tenant_id, call.call_id)
    timer = make_timer(namespace, "bad", correlation_id="c")
    for name in ("bad", "good"):
        yield partial(catalogue.get_namespace, name)
        yield partial(catalogue.create_namespace, name, num_shards=1, dedicated=False, now=NOW)
        yield partial(catalogue.get_api_key, name)
        yield partial(catalogue.secret, name, b"s")
        yield partial(catalogue.put_idempotency_record, record_of(name, claim_id="other"), now=NOW)
        yield partial(catalogue.put_idempotency_record, record_of(name), if_claim="mine", now=LATER)
    yield partial(catalogue.update_namespace, namespace, if_revision=1, now=NOW)
    yield partial(catalogue.create_namespace, "new", num_shards=9, dedicated=False, now=NOW)
    yield catalogue.shard_map
    yield transfer.secrets
    yield lambda: [list(page.records) for page in StoreScan(store, now=NOW).pages()]
    yield partial(transfer.load_namespace, namespace)
    yield partial(store.leases.statuses, [0, 1], now=NOW)
    yield partial(store.leases.claim, [0, 1], "w2", lease_seconds=9, metadata="{}", now=LATER)
    yield partial(store.leases.announce_worker, "new", ttl_seconds=9, now=NOW)
    yield partial(timers.get, namespace, "bad", now=NOW)
    yield partial(timers.put, [timer], mode=PutMode.CREATE, now=NOW)
    yield partial(timers.put, [timer], mode=PutMode.REPLACE, now=NOW)
    yield partial(timers.update, namespace, "bad", TimerChange(), firing_id="f", now=NOW)
    yield partial(timers.rearm, namespace, [TimerRef("bad")], rearm=Rearm.REDRIVE, now=NOW)
    schedule_id = schedule_timer_id("s1")
    yield lambda: listed(partial(store.schedules.list, namespace, now=NOW))
    yield lambda: store.schedules.history(stored(store, namespace, schedule_id), limit=9)
    yield partial(transfer.load_timers, [timer], now=NOW)
    yield partial(calls.get, [ref], now=NOW)
    yield partial(calls.list_events, tenant, call.call_id, after=0, limit=99)
    yield lambda: listed(partial(calls.list_executions, tenant, call.call_id))
    yield partial(calls.apply, [make.cancelled(call)], now=NOW)
    yield partial(store.outbox.unpublished_of, ref, limit=99)
    yield lambda: store.outbox.mark_published(store.outbox.unpublished(limit=2), now=NOW)
    yield partial(timers.delete, namespace, [TimerRef("bad"), TimerRef(schedule_id)], now=NOW)
    yield partial(calls.delete, tenant, call.call_id, now=NOW)
    yield partial(timers.prune, now=LATER, limit=99)
    yield partial(calls.prune, now=LATER, events_published_before=LATER, limit=99)
    yield partial(catalogue.delete_api_key, "acme", "bad")
    yield partial(catalogue.delete_namespace, "bad", if_revision=1)


FIELDS = [pytest.param(entity, name, id=f"{entity.name}-{name}") for entity in ENTITIES for name in entity.names]


@pytest.mark.parametrize("is_of_type", [False, True])
@pytest.mark.parametrize(("entity", "field"), FIELDS)
def test_no_damage_hides_others_from_a_list(contents: Contents, entity: Entity, field: str, is_of_type: bool) -> None:
    contents.damage(entity, field, UNREAL[entity.by_name[field].kind] if is_of_type else DAMAGED)

    assert_lists_go_on(contents)
    for operation in operations_of(contents):
        with suppress(DuetimeError):  # it says what is wrong; any other error is a fault
            operation()


def assert_lists_go_on(contents: Contents) -> None:
    store, namespace, tenant = contents.store, contents.namespace, contents.call.tenant_id

    assert "good" in {each.name for each in listed(store.catalogue.list_namespaces)}
    assert "good" in {each.name for each in listed(store.transfer.all_namespaces)}
    assert "good" in {each.key_id for each in listed(partial(store.catalogue.list_api_keys, "acme"))}
    assert "good" in {each.key_id for each in listed(store.transfer.all_api_keys)}
    assert store.transfer.secrets()["good"] == b"s"
    assert "good" in store.leases.announce_worker("new", ttl_seconds=9, now=NOW)
    assert [status.shard_id for status in store.leases.statuses([0, 1], now=NOW)] == [0, 1]
    for wanted in (TimerFilter(), TimerFilter(tag="a")):
        found = listed(partial(store.timers.list, namespace, wanted, now=NOW))
        assert "good" in {timer.timer_id for timer in found}
    assert "good" in {timer.timer_id for timer in store.timers.due(0, until=NOW, limit=9).timers}
    assert "s1" in {timer.schedule_id for timer in listed(partial(store.schedules.list, namespace, now=NOW))}
    for call_filter in (CallFilter(), CallFilter(tags=("a",))):
        found = listed(partial(store.calls.list, tenant, call_filter, now=NOW))
        assert {call.call_id for call in found} - {contents.call.call_id}
    assert {each.event.aggregate_id for each in store.outbox.unpublished(limit=99)} - {contents.call.call_id}
    stored = store.transfer.all_events(cursor=None, limit=99).events
    assert {each.event.aggregate_id for each in stored} - {contents.call.call_id}


@pytest.mark.parametrize("is_of_type", [False, True])
@pytest.mark.parametrize("field", ["timer_schedule", "timer_timing", "timer_state", "timer_execute_at"])
def test_a_damaged_schedule_is_shown_and_can_be_removed(contents: Contents, field: str, is_of_type: bool) -> None:
    timer_id = schedule_timer_id("s1")
    value = UNREAL[TIMER.by_name[field].kind] if is_of_type else DAMAGED
    contents.backend.damage(TIMER, (0, "bad", timer_id), **{field: value})
    store, namespace = contents.store, contents.namespace

    for operation in operations_of(contents):
        with suppress(DuetimeError):
            operation()

    assert store.timers.get(namespace, timer_id, now=NOW) is None
    assert contents.backend.read(OCCURRENCE, [contents.keys[OCCURRENCE.name]]) == [None]


@pytest.mark.parametrize("field", ["timer_schedule", "timer_timing"])
def test_a_damaged_schedule_is_no_timer_in_any_list(contents: Contents, field: str) -> None:
    store, namespace = contents.store, contents.namespace
    schedule = make_schedule(namespace, "correlated")
    create(store, replace(schedule, content=replace(schedule.content, correlation_id="c1")))
    contents.backend.damage(TIMER, (schedule.shard_id, namespace.name, schedule.timer_id), **{field: DAMAGED})
    no_schedules = TimerFilter(is_of_schedule=False)

    listed = store.timers.list(namespace, no_schedules, cursor=None, limit=99, now=NOW)
    correlated = store.timers.find_by_correlation(namespace, "c1", cursor=None, limit=99, now=NOW)

    assert schedule.timer_id not in [timer.timer_id for timer in listed.items]
    assert [timer.timer_id for timer in correlated.items] == [schedule.timer_id]
    assert not no_schedules.fits(correlated.items[0])


# -- what is told ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entity", "field", "operation", "what"),
    [
        (COUNTER, "counter_value", lambda store: store.catalogue.shard_map(), "counter 'shared_shards'"),
        (SECRET, "secret_value", lambda store: store.catalogue.secret("bad", b"s"), "secret 'bad'"),
        (
            IDEMPOTENCY_RECORD,
            "record_content",
            lambda store: store.catalogue.put_idempotency_record(record_of("bad"), now=NOW),
            "idempotency record 'bad'",
        ),
    ],
    ids=["counter", "secret", "idempotency record"],
)
def test_a_damaged_row_is_named(
    contents: Contents, entity: Entity, field: str, operation: Callable[[Store], object], what: str
) -> None:
    contents.damage(entity, field, DAMAGED)

    with pytest.raises(StoreError, match=f"the stored {what} cannot be read"):
        operation(contents.store)


def test_a_namespace_without_shards_is_unreadable(contents: Contents) -> None:
    contents.damage(NAMESPACE, "num_shards", 0)

    found = contents.store.catalogue.get_namespace("bad")

    assert found is not None
    assert found.unreadable


def test_an_export_reports_a_damaged_secret(contents: Contents) -> None:
    contents.damage(SECRET, "secret_value", DAMAGED)

    records = [each for page in StoreScan(contents.store, now=NOW).pages() for each in page.records]

    secrets = [record.value for record in records if isinstance(record.value, CatalogueSecret | Unreadable)]
    assert secrets == [
        Unreadable(Kind.SECRET, ("bad",), "the stored secret cannot be read"),
        CatalogueSecret("good", b"s"),
    ]


def test_an_idempotency_record_that_cannot_be_read_gives_way_when_it_has_expired(contents: Contents) -> None:
    contents.damage(IDEMPOTENCY_RECORD, "record_content", DAMAGED)
    later = IdempotencyRecord(key="bad", claim_id="other", content="{}", expires_at=LATER + RETENTION)

    assert contents.store.catalogue.put_idempotency_record(later, now=LATER) == later
