from __future__ import annotations

from types import SimpleNamespace

import pytest

from duetime.calls.notifying_store import Notifier, NotifyingCallStore
from duetime.stores.port.calls import ApplyStatus, CallStore, DeleteStatus
from tests.support.clock import NOW

OPERATIONS = [name for name in vars(CallStore) if not name.startswith("_") and name not in ("apply", "delete")]


def store_that(*statuses: ApplyStatus) -> SimpleNamespace:
    answers = {name: object() for name in OPERATIONS}
    return SimpleNamespace(apply=lambda transitions, *, now: list(statuses), **answers)


@pytest.mark.parametrize(
    ("statuses", "times"),
    [
        ([ApplyStatus.SUPERSEDED, ApplyStatus.APPLIED], 1),
        ([ApplyStatus.APPLIED, ApplyStatus.APPLIED], 1),
        ([ApplyStatus.SUPERSEDED, ApplyStatus.SUPERSEDED], 0),
    ],
)
def test_it_notifies_once_of_what_was_applied_and_has_events(statuses, times) -> None:
    notifier, told = Notifier(), []
    notifier.connect(lambda: told.append(1))
    transitions = [SimpleNamespace(events=("e",)), SimpleNamespace(events=("e",))]
    assert NotifyingCallStore(store_that(*statuses), notifier).apply(transitions, now=NOW) == statuses
    assert len(told) == times


def test_a_change_without_events_notifies_nobody() -> None:
    notifier, told = Notifier(), []
    notifier.connect(lambda: told.append(1))
    NotifyingCallStore(store_that(ApplyStatus.APPLIED), notifier).apply([SimpleNamespace(events=())], now=NOW)
    assert told == []


@pytest.mark.parametrize(
    ("status", "event", "times"),
    [(DeleteStatus.DELETED, "e", 1), (DeleteStatus.NOT_FOUND, "e", 0), (DeleteStatus.DELETED, None, 0)],
)
def test_it_notifies_of_a_removal_that_has_an_event(status, event, times) -> None:
    notifier, told = Notifier(), []
    notifier.connect(lambda: told.append(1))
    inner = store_that()
    inner.delete = lambda *_, **given: status if given["event"] == event else None
    assert NotifyingCallStore(inner, notifier).delete("a", "b", now=NOW, event=event) is status
    assert len(told) == times


def test_a_notifier_that_is_not_connected_notifies_nobody() -> None:
    Notifier().notify()


def test_every_other_operation_is_the_stores_own() -> None:
    inner = store_that()
    wrapped = NotifyingCallStore(inner, Notifier())
    assert OPERATIONS
    assert all(getattr(wrapped, name) is getattr(inner, name) for name in OPERATIONS)
