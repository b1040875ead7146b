"""Targets that hold something else, and sources that cannot read all they have."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from duetime.domain.call_steps import Transition
from duetime.domain.errors import StoreError
from duetime.domain.namespaces import NamespaceSettings
from duetime.domain.timers import Timer, TimerChange
from duetime.stores.core.store import Store
from duetime.stores.port.calls import CallRef
from duetime.stores.port.outbox import OutboxEvent
from duetime.stores.port.timers import TimerFilter
from duetime.stores.port.transfer import LoadStatus
from duetime.testing.contract import call_builders as make
from duetime.testing.contract.builders import make_timer, seconds
from duetime.testing.contract.steps import claim, create, stored
from duetime.transfer.errors import BadExport, TransferRefused
from duetime.transfer.importing import Importer, verify
from duetime.transfer.lines import CHECKPOINT_START, Checksum, trailer_line
from duetime.transfer.reading import ExportReader
from duetime.transfer.scan import StoreScan
from duetime.transfer.serving import refuse_if_served
from duetime.transfer.totals import Totals
from tests.contract.sql_stores import corrupt, corrupt_call
from tests.support.clock import NOW
from tests.support.parts import Intercepted
from tests.support.sql_store import SqlStore
from tests.support.stores import memory_store
from tests.support.transfer import exported, fill, imported
from tests.support.unreadable import key_of_a_later_role, make_unreadable


@pytest.fixture
def source() -> Iterator[Store]:
    with memory_store() as store:
        fill(store)
        yield store


@pytest.fixture
def target() -> Iterator[Store]:
    with memory_store() as store:
        yield store


def load(store: Store, data: bytes, *, is_rehearsal: bool = False) -> Importer:
    importer = Importer(store, now=NOW, is_rehearsal=is_rehearsal)
    importer.run(ExportReader(io.BytesIO(data)))
    return importer


def differences(store: Store, data: bytes) -> list[str]:
    reader = ExportReader(io.BytesIO(data))
    list(reader.pages())
    return verify(store, reader.totals, now=NOW)


def test_a_rehearsal_writes_nothing(source: Store, target: Store) -> None:
    load(target, exported(source), is_rehearsal=True)

    assert len(exported(target).splitlines()) == 2


@pytest.mark.parametrize("is_rehearsal", [True, False])
def test_a_target_with_another_namespace_is_refused_untouched(
    source: Store, target: Store, is_rehearsal: bool
) -> None:
    target.catalogue.create_namespace("mine", num_shards=4, dedicated=False, now=NOW)
    before = exported(target)

    with pytest.raises(TransferRefused, match="the target holds other contents: namespace 'mine' is not in the file"):
        load(target, exported(source), is_rehearsal=is_rehearsal)

    assert exported(target) == before


def test_a_target_whose_namespace_is_another_is_refused_untouched(source: Store, target: Store) -> None:
    target.catalogue.create_namespace("orders", num_shards=4, dedicated=False, now=NOW + seconds(1))

    with pytest.raises(TransferRefused, match="its namespace 'orders' differs from the file's"):
        load(target, exported(source))

    assert target.catalogue.get_namespace("own") is None


def test_a_target_with_a_secret_or_a_key_of_its_own_is_refused(source: Store, target: Store) -> None:
    target.catalogue.secret("cursor", b"another")

    with pytest.raises(TransferRefused, match="its catalogue secret 'cursor' differs from the file's"):
        load(target, exported(source))


def test_what_was_changed_in_the_target_is_a_conflict_and_stays(source: Store, target: Store) -> None:
    data = exported(source)
    imported(target, data)
    orders = target.catalogue.get_namespace("orders")
    assert orders is not None
    target.timers.update(orders, "t0003", TimerChange(tags=("new",)), firing_id="f", now=NOW)
    changed = stored(target, orders, "t0003")

    loaded = load(target, data).loaded

    assert loaded.conflicts == ["timer 't0003' of namespace 'orders'"]
    assert (loaded.statuses[LoadStatus.CONFLICT], loaded.statuses[LoadStatus.LOADED]) == (1, 0)
    assert stored(target, orders, "t0003") == changed
    (found,) = differences(target, data)
    assert found.startswith("timer: ")
    assert found.endswith(" in both, but not the same")


def test_a_call_that_went_on_in_the_target_is_a_conflict_without_its_executions(source: Store, target: Store) -> None:
    data = exported(source)
    imported(target, data)
    target.calls.delete("acme", make.id_at(NOW, 3), now=NOW)
    other = make.submitted(tenant_id="acme", call_id=make.id_at(NOW, 99), idempotency_key="k3")
    target.calls.apply([other], now=NOW)

    loaded = load(target, data).loaded

    assert loaded.conflicts == [f"service call {make.id_at(NOW, 3)} of tenant 'acme'"]
    assert target.calls.list_executions("acme", make.id_at(NOW, 3), cursor=None, limit=9).items == []


def test_what_is_missing_or_too_much_is_found_when_comparing(source: Store, target: Store) -> None:
    data = exported(source)
    imported(target, data)
    orders = target.catalogue.get_namespace("orders")
    assert orders is not None
    create(target, make_timer(orders, "extra"))
    target.calls.delete("acme", make.id_at(NOW, 1), now=NOW)

    found = differences(target, data)

    assert [each.partition(":")[0] for each in found] == ["timer", "serviceCall"]
    assert found[1] == "serviceCall: 6 in the file, 5 in the store"  # without those that expire soon


def test_a_change_of_one_value_is_found_when_comparing(source: Store, target: Store) -> None:
    data = exported(source)
    imported(target, data)
    changed = target.catalogue.get_namespace("changed")
    assert changed is not None
    given = replace(changed, settings=NamespaceSettings(max_in_flight=4))
    target.catalogue.update_namespace(given, if_revision=changed.revision, now=NOW)

    assert differences(target, data) == ["namespace: 6 in both, but not the same"]


def test_what_expires_on_the_way_is_left_out(source: Store, target: Store) -> None:
    later = NOW + seconds(8 * 86_400)
    data = exported(source)

    loaded = imported(target, data, now=later)

    assert loaded.num_expired > 4
    assert exported(target, now=later) == exported(source, now=later)


def test_what_cannot_be_read_is_named_and_not_moved(source: Store, target: Store) -> None:
    assert isinstance(source, SqlStore)
    orders = source.catalogue.get_namespace("orders")
    assert orders is not None
    (bad,) = create(source, make_timer(orders, "bad"))
    corrupt(source, bad)
    (call,) = [each for each in source.calls.get([CallRef("acme", make.id_at(NOW, 1))], now=NOW) if each is not None]
    corrupt_call(source, call)

    data = exported(source)
    loaded = imported(target, data)

    named = [line for line in data.splitlines() if line.startswith(b'{"kind":"unreadable"')]
    assert [line.partition(b',"reason"')[0] for line in named] == [
        b'{"kind":"unreadable","of":"timer","place":["orders","bad"]',
        b'{"kind":"unreadable","of":"serviceCall","place":["acme","%s"]' % make.id_at(NOW, 1).encode(),
    ]
    assert loaded.num_unreadable == 2
    assert target.timers.get(orders, "bad", now=NOW) is None


def test_a_store_whose_shards_are_held_is_refused(source: Store) -> None:
    before = refuse_if_served(source, now=NOW)
    assert refuse_if_served(source, now=NOW) == before
    claim(source, 2, "worker-7")

    with pytest.raises(TransferRefused, match="1 of its shards are held by worker-7"):
        refuse_if_served(source, now=NOW)
    assert refuse_if_served(source, now=NOW + seconds(11)) != before


def test_a_file_without_the_namespace_of_its_timers_is_refused(source: Store, target: Store) -> None:
    """With right checksums: by a program that is not ours."""
    lines = [line for line in exported(source).splitlines()[:-1] if not line.startswith(CHECKPOINT_START)]
    lines = [line for line in lines if not line.startswith(b'{"kind":"namespace","name":"orders"')]
    totals, checksum = Totals(), Checksum()
    for page in StoreScan(source, now=NOW).pages():
        for record in page.records:
            if record.line in lines:
                totals.add(record)
    for line in lines:
        checksum.add(line)
    data = b"\n".join([*lines, trailer_line(totals, checksum.text()), b""])

    with pytest.raises(BadExport, match="of namespace 'orders', but not the namespace"):
        load(target, data)


def test_what_cannot_be_read_of_the_catalogue_is_told_and_the_rest_is_moved(source: Store, target: Store) -> None:
    orders = source.catalogue.get_namespace("orders")
    assert orders is not None
    make_unreadable(source, orders)
    key_of_a_later_role(source, "later", "acme", secret="s")
    own = source.catalogue.get_namespace("own")
    assert own is not None
    later = replace(own, settings=replace(own.settings, unknown_json='{"quietHours": 1}'))
    assert source.catalogue.update_namespace(later, if_revision=own.revision, now=NOW)
    data = exported(source)

    loaded = imported(target, data)

    named = [line for line in data.splitlines() if line.startswith(b'{"kind":"unreadable"')]
    assert [line.partition(b',"reason"')[0] for line in named] == [
        b'{"kind":"unreadable","of":"namespace","place":["orders"]',
        b'{"kind":"unreadable","of":"apiKey","place":["acme","later"]',
    ]
    assert loaded.num_unreadable == 2
    assert set(loaded.statuses) == {LoadStatus.LOADED}
    assert target.catalogue.get_namespace("orders") is None
    moved = target.catalogue.get_namespace("own")
    assert moved is not None
    assert moved.settings.unknown_json == '{"quietHours": 1}'
    assert target.timers.list(moved, TimerFilter(), cursor=None, limit=5, now=NOW).items


# -- what the target refuses --------------------------------------------------------------------------------------


class Refusing(Intercepted):
    """A store that refuses what ``is_refused`` says, each batch with such a record in it as a whole."""

    def __init__(self, store: Store, is_refused: Callable[[Any], bool]) -> None:
        super().__init__(store, self._operate)
        self._is_refused = is_refused

    def _operate(self, name: str, operation: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        if name.startswith("transfer.load_") or name in ("calls.apply", "catalogue.create_api_key"):
            (given,) = arguments
            if any(map(self._is_refused, given if isinstance(given, list | tuple) else [given])):
                raise StoreError("too large")
        return operation(*arguments, **named)


def timer_name(timer: Timer) -> tuple[str, str]:
    return timer.namespace, timer.timer_id


def call_of(value: Any) -> str | None:
    return value.after.call_id if isinstance(value, Transition) else None


@pytest.mark.parametrize(
    ("is_refused", "named"),
    [
        (
            lambda value: isinstance(value, Timer) and timer_name(value) == ("orders", "t0003"),
            ["timer 't0003' of namespace 'orders'"],
        ),
        (lambda value: getattr(value, "key_id", "").endswith("1"), ["API key"]),
        (lambda value: getattr(value, "number", None) == 1, ["execution"]),
        (lambda value: isinstance(value, OutboxEvent) and value.event.sequence == 2, ["event"]),
        (lambda value: call_of(value) == make.id_at(NOW, 3), ["service call"]),
        (lambda value: getattr(value, "name", "") == "own", ["namespace 'own'", "timer", "occurrence"]),
    ],
    ids=["timer", "key", "execution", "event", "call", "namespace"],
)
def test_what_the_target_refuses_is_named_and_all_else_is_loaded(
    source: Store, target: Store, is_refused: Callable[[Any], bool], named: list[str]
) -> None:
    data = exported(source)
    refusing: Any = Refusing(target, is_refused)

    loaded = load(refusing, data).loaded
    again = load(target, data).loaded

    assert loaded.num_refused == len(loaded.refusals) > 0
    assert {each.partition(":")[2] for each in loaded.refusals} <= {" too large", " its namespace was refused"}
    for start in named:
        assert any(each.startswith(start) for each in loaded.refusals), start
    assert all(each.startswith(tuple(named)) for each in loaded.refusals)
    # What was there already is all that was not refused, and what hangs on a call that was.
    assert again.statuses[LoadStatus.CONFLICT] == 0
    assert again.statuses[LoadStatus.PRESENT] == loaded.statuses[LoadStatus.LOADED]
    assert exported(target) == data
