"""Handing events to publishers, so that the order within each service call is kept.

Events go out in *waves*: the first of every call, then the second of every call, and so on. So no publisher ever
holds two events of one call at once, and a call whose event was not taken gets nothing after it before that one is.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from duetime.domain.call_events import CallEvent
from duetime.domain.errors import StoreUnavailable
from duetime.stores.port.calls import CallRef
from duetime.stores.port.outbox import OutboxEvent

log = logging.getLogger(__name__)


class EventPublisher(Protocol):
    """Where events go. Called from one thread at a time."""

    @property
    def name(self) -> str: ...

    def publish(self, events: Sequence[CallEvent]) -> Mapping[str, str]:
        """Deliver the events, one of a service call at most. Blocks for some seconds at most.

        By event id, why each one that was not taken was not (or that this is not known): the code of the error, where
        it is one of ours. An event may come again: with the same id, and after it those that follow it.
        """
        ...

    def close(self) -> None: ...


@dataclass(slots=True)
class Published:
    """``taken``: by every publisher, in the order given. ``failed``: calls whose next event was not, and why;
    ``waiting_for_store``: those of them for which only the store was away, where webhooks have their timers.
    """

    taken: list[OutboxEvent] = field(default_factory=list)
    failed: dict[CallRef, str] = field(default_factory=dict)
    waiting_for_store: set[CallRef] = field(default_factory=set)


def ref_of(event: CallEvent) -> CallRef:
    return CallRef(event.tenant_id, event.aggregate_id)


def publish_in_order(events: Sequence[OutboxEvent], publishers: Sequence[EventPublisher]) -> Published:
    """Hand ``events``, of each call in order of sequence, to all ``publishers``, one after the other."""
    published = Published()
    for wave in _waves(events):
        left = wave
        if published.failed:
            left = [stored for stored in left if ref_of(stored.event) not in published.failed]
        for publisher in publishers:
            reasons = _reasons(publisher, [stored.event for stored in left])
            if not reasons:
                continue
            for stored in left:
                if (reason := reasons.get(stored.event.event_id)) is not None:
                    ref = ref_of(stored.event)
                    published.failed[ref] = f"{publisher.name}: {reason}"
                    if reason == StoreUnavailable.code:
                        published.waiting_for_store.add(ref)
            left = [stored for stored in left if stored.event.event_id not in reasons]
        published.taken += left
    return published


def _waves(events: Sequence[OutboxEvent]) -> Iterator[list[OutboxEvent]]:
    seen: Counter[tuple[str, str]] = Counter()
    waves: list[list[OutboxEvent]] = []
    for stored in events:
        call = (stored.event.tenant_id, stored.event.aggregate_id)
        if seen[call] == len(waves):
            waves.append([])
        waves[seen[call]].append(stored)
        seen[call] += 1
    yield from waves


def _reasons(publisher: EventPublisher, events: Sequence[CallEvent]) -> Mapping[str, str]:
    if not events:
        return {}
    try:
        return publisher.publish(events)
    except Exception as error:  # a publisher's bug must stop neither the others nor the relay
        log.error(
            "a publisher failed",
            exc_info=error,
            extra={"action": "outbox.publisher_crashed", "publisher": publisher.name},
        )
        return dict.fromkeys((event.event_id for event in events), type(error).__name__)


class LogPublisher:
    """Each event as a line of the log, without its payload: that has the request's URL."""

    name = "log"

    def publish(self, events: Sequence[CallEvent]) -> Mapping[str, str]:
        if log.isEnabledFor(logging.INFO):
            each = [
                {
                    "event_id": event.event_id,
                    "type": event.type._value_,
                    "tenant_id": event.tenant_id,
                    "call_id": event.aggregate_id,
                    "sequence": event.sequence,
                    "correlation_id": event.correlation_id,
                }
                for event in events
            ]
            log.info("an event of a service call", extra={"action": "service_call.event", "each": each})
        return {}

    def close(self) -> None:
        """Do nothing: there is nothing to close."""
