"""The outbox put together: publishers as the settings name them, and the relay of the commands."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from duetime.calls.publishing import EventPublisher, LogPublisher
from duetime.calls.relay import OutboxRelay, RelaySettings
from duetime.calls.webhook_publisher import WebhookPublisher
from duetime.domain.clock import Clock
from duetime.domain.timers import Timer
from duetime.runtime.eventbridge import EventBridgePublisher
from duetime.runtime.ids import new_id, new_worker_id, worker_metadata
from duetime.runtime.process_life import has_died
from duetime.runtime.settings import LocalSettings, OutboxSettings, WorkerSettings, load_settings
from duetime.runtime.tuning import EventPublisherName, OutboxTuning
from duetime.runtime.wiring import log_to_lambda, make_waker, store_clock, write_line
from duetime.stores.core.store import Store

if TYPE_CHECKING:
    from duetime.runtime.outbox_function import OutboxFunction


def make_publishers(
    settings: OutboxTuning,
    store: Store,
    clock: Clock,
    *,
    on_stored: Callable[[Sequence[Timer]], None] = lambda _: None,
) -> list[EventPublisher]:
    """Make the publishers in order of use. The log is last: its line says that an event was published."""
    makers: dict[EventPublisherName, Callable[[], EventPublisher]] = {
        EventPublisherName.WEBHOOK: lambda: WebhookPublisher(store, clock=clock, on_stored=on_stored),
        EventPublisherName.EVENTBRIDGE: lambda: EventBridgePublisher(settings.event_bus, clock=clock),
        EventPublisherName.LOG: LogPublisher,
    }
    return [make() for name, make in makers.items() if name in settings.publishers]


@contextmanager
def opened_relay(
    store: Store,
    settings: LocalSettings | WorkerSettings,
    clock: Clock,
    *,
    on_stored: Callable[[Sequence[Timer]], None],
) -> Iterator[OutboxRelay | None]:
    """Yield the relay of this process; None when it is to publish nothing. ``OutboxRelay.run`` has ended by the end.

    What ``store.calls`` writes of events wakes it. ``on_stored`` is told of the timers that deliver to webhooks: a
    hint for the poller here.
    """
    publishers = make_publishers(settings, store, clock, on_stored=on_stored)
    if not publishers:
        yield None
        return
    relay = OutboxRelay(
        store.leases,
        store.outbox,
        publishers,
        calls=store.calls,
        clock=clock,
        settings=RelaySettings(
            lease_seconds=settings.lease_seconds, retention_seconds=settings.event_retention_seconds
        ),
        owner_id=new_worker_id(),
        metadata=worker_metadata(),
        has_died=has_died,
        random=random.random,
        new_id=new_id,
    )
    store.calls.on_events.append(relay.notify)
    try:
        yield relay
    finally:
        for publisher in publishers:
            publisher.close()


def outbox_function() -> OutboxFunction:
    """Return the outbox on Lambda, settings from the environment."""
    from duetime.runtime.emf import metrics_line
    from duetime.runtime.outbox_function import OutboxFunction
    from duetime.stores.open import open_store

    settings = load_settings(OutboxSettings)
    log_to_lambda(settings)
    store = open_store(settings.store)
    clock = store_clock(store)
    dimensions = {"Stage": settings.stage, "Function": os.environ.get("AWS_LAMBDA_FUNCTION_NAME", "outbox")}

    def report(metrics: Mapping[str, tuple[str, float]]) -> None:
        rows = [(name, unit, value) for name, (unit, value) in metrics.items()]
        write_line(metrics_line(rows, dimensions, {"action": "outbox.metrics"}, at=clock.now()))

    return OutboxFunction(
        store.outbox,
        make_publishers(settings, store, clock, on_stored=make_waker(store, clock, settings)),
        calls=store.calls,
        clock=clock,
        report=report,
        sweep_after_seconds=settings.sweep_after_seconds,
        keep_time=clock.keep,
        new_id=new_id,
    )
