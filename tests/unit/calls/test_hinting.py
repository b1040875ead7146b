from __future__ import annotations

from types import SimpleNamespace

import pytest

from duetime.calls.hinting import Bell, ringing
from duetime.stores.port.calls import ApplyStatus, CallStore, DeleteStatus
from tests.support.clock import NOW

OPERATIONS = [name for name in vars(CallStore) if not name.startswith("_") and name not in ("apply", "delete")]


def store_that(*statuses: ApplyStatus) -> SimpleNamespace:
    answers = {name: object() for name in OPERATIONS}
    return SimpleNamespace(apply=lambda transitions, *, now: list(statuses), **answers)


@pytest.mark.parametrize(
    ("statuses", "rings"),
    [
        ([ApplyStatus.SUPERSEDED, ApplyStatus.APPLIED], 1),
        ([ApplyStatus.APPLIED, ApplyStatus.APPLIED], 1),
        ([ApplyStatus.SUPERSEDED, ApplyStatus.SUPERSEDED], 0),
    ],
)
def test_it_rings_once_for_what_was_applied_and_has_events(statuses, rings) -> None:
    bell, rung = Bell(), []
    bell.connect(lambda: rung.append(1))
    transitions = [SimpleNamespace(events=("e",)), SimpleNamespace(events=("e",))]
    assert ringing(store_that(*statuses), bell).apply(transitions, now=NOW) == statuses
    assert len(rung) == rings


def test_a_change_without_events_rings_nobody() -> None:
    bell, rung = Bell(), []
    bell.connect(lambda: rung.append(1))
    ringing(store_that(ApplyStatus.APPLIED), bell).apply([SimpleNamespace(events=())], now=NOW)
    assert rung == []


@pytest.mark.parametrize(
    ("status", "event", "rings"),
    [(DeleteStatus.DELETED, "e", 1), (DeleteStatus.NOT_FOUND, "e", 0), (DeleteStatus.DELETED, None, 0)],
)
def test_it_rings_for_a_removal_that_has_an_event(status, event, rings) -> None:
    bell, rung = Bell(), []
    bell.connect(lambda: rung.append(1))
    inner = store_that()
    inner.delete = lambda *_, **given: status if given["event"] == event else None
    assert ringing(inner, bell).delete("a", "b", now=NOW, event=event) is status
    assert len(rung) == rings


def test_a_bell_that_is_not_connected_rings_nobody() -> None:
    Bell().ring()


def test_every_other_operation_is_the_stores_own() -> None:
    inner = store_that()
    wrapped = ringing(inner, Bell())
    assert OPERATIONS
    assert all(getattr(wrapped, name) is getattr(inner, name) for name in OPERATIONS)
