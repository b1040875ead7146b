from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from duetime.calls.notifying_store import Notifier, NotifyingCallStore
from duetime.stores.core.calls import CallStore
from duetime.stores.port.calls import ApplyStatus, DeleteStatus
from tests.support.clock import NOW

NO_STORE: Any = SimpleNamespace(_backend=None)


@pytest.mark.parametrize(
    ("statuses", "times"),
    [
        ([ApplyStatus.SUPERSEDED, ApplyStatus.APPLIED], 1),
        ([ApplyStatus.APPLIED, ApplyStatus.APPLIED], 1),
        ([ApplyStatus.SUPERSEDED, ApplyStatus.SUPERSEDED], 0),
    ],
)
def test_it_notifies_once_of_what_was_applied_and_has_events(monkeypatch, statuses, times) -> None:
    notifier, told = Notifier(), []
    notifier.connect(lambda: told.append(1))
    transitions = [SimpleNamespace(events=("e",)), SimpleNamespace(events=("e",))]
    monkeypatch.setattr(CallStore, "apply", lambda self, transitions, *, now: statuses)
    assert NotifyingCallStore(NO_STORE, notifier).apply(transitions, now=NOW) == statuses
    assert len(told) == times


def test_a_change_without_events_notifies_nobody(monkeypatch) -> None:
    notifier, told = Notifier(), []
    notifier.connect(lambda: told.append(1))
    monkeypatch.setattr(CallStore, "apply", lambda self, transitions, *, now: [ApplyStatus.APPLIED])
    NotifyingCallStore(NO_STORE, notifier).apply([SimpleNamespace(events=())], now=NOW)
    assert told == []


@pytest.mark.parametrize(
    ("status", "event", "times"),
    [(DeleteStatus.DELETED, "e", 1), (DeleteStatus.NOT_FOUND, "e", 0), (DeleteStatus.DELETED, None, 0)],
)
def test_it_notifies_of_a_removal_that_has_an_event(monkeypatch, status, event, times) -> None:
    notifier, told = Notifier(), []
    notifier.connect(lambda: told.append(1))
    monkeypatch.setattr(CallStore, "delete", lambda *_, **given: status if given["event"] == event else None)
    assert NotifyingCallStore(NO_STORE, notifier).delete("a", "b", now=NOW, event=event) is status
    assert len(told) == times


def test_a_notifier_that_is_not_connected_notifies_nobody() -> None:
    Notifier().notify()
