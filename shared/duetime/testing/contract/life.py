"""initialise, check, close."""

from __future__ import annotations

from collections.abc import Callable

from duetime.domain.namespaces import Namespace
from duetime.stores.core.store import Store
from duetime.stores.port.timers import PutMode
from duetime.testing.contract.builders import NOW, make_timer
from duetime.testing.contract.subject import Subject


def test_initialising_again_keeps_everything(store: Store, orders: Namespace) -> None:
    timer = make_timer(orders)
    store.timers.put([timer], mode=PutMode.CREATE, now=NOW)

    store.initialise()
    store.check()

    assert store.catalogue.get_namespace("orders") == orders
    assert store.timers.get(orders, timer.timer_id, now=NOW) == timer


def test_another_store_object_sees_the_same_data(
    store: Store, reopen: Callable[[], Store], orders: Namespace
) -> None:
    timer = make_timer(orders)
    store.timers.put([timer], mode=PutMode.CREATE, now=NOW)

    other = reopen()
    other.initialise()

    assert other.timers.get(orders, timer.timer_id, now=NOW) == timer


def test_closing_twice_does_no_harm_to_the_data(subject: Subject, orders: Namespace) -> None:
    if subject.reopen is None:
        subject.store.close()
        subject.store.close()
        return
    other = subject.reopen()
    other.close()
    other.close()

    assert subject.store.catalogue.get_namespace("orders") == orders
