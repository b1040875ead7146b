"""Tells the world that timers failed, or what became of schedules, before that is recorded, and never for long.

Order: an event is published, then its outcome is recorded, so a crash in between announces a failure twice and
never not at all. Events have a thread of their own: outcomes that need no event do not wait for a slow bus.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Protocol

from duetime.domain.events import Event, EventsUndelivered, TimerFailed, unreadable_event
from duetime.engine.context import EngineContext
from duetime.engine.waiting import WakeupEvent
from duetime.stores.port.timers import UnreadableRow

log = logging.getLogger(__name__)

MAX_BATCH = 100
MAX_PENDING = 1000
"""Events that may wait while the bus takes them. Their outcomes wait with them, unrecorded."""
TRIES = 3
FIRST_BACKOFF_SECONDS = 0.2
PATIENCE_SECONDS = 5.0
"""No try begins later than this after the first one, and none is waited for longer."""


class FailureEvents(Protocol):
    """Where events go. Called from one thread at a time."""

    def publish(self, events: Sequence[Event]) -> None:
        """Deliver the events, at most MAX_BATCH of them; blocks for a few seconds at most.

        Raises ``EventsUndelivered``. An event may come again, with the same ``event_id``.
        """
        ...


def event_of(row: UnreadableRow, *, at: datetime) -> TimerFailed:
    """Return the event of a row that was quarantined at ``at``."""
    return unreadable_event(
        namespace=row.namespace, timer_id=row.timer_id, key=f"{row.shard_id}:{row.key}", reason=row.reason, at=at
    )


class FailureEventPublisher:
    """Publishes events in batches and calls back for each one, whether it could be published or not.

    An event that could not be is logged whole. After that, until one is taken again, each batch gets a single try,
    and no more than a batch may wait for it: what comes beyond that is logged at once. So a flood of failures with a
    broken bus takes no room from the outcomes of others for longer than it takes to find out.
    """

    def __init__(self, publisher: FailureEvents, context: EngineContext) -> None:
        self._publisher = publisher
        self._offload = context.threads.make(1, "duetime-events")
        self._stats = context.stats
        self._random = context.random
        self._pending: list[tuple[Event, Callable[[], None]]] = []
        self._alarm = WakeupEvent()
        self._is_heard = True

    def add(self, event: Event, then: Callable[[], None]) -> None:
        """Publish ``event``. ``then`` is called in the event loop's thread when all that can be done has been."""
        if len(self._pending) >= self._room:
            self._log_undelivered([event], "too many events wait")
            then()
        else:
            self._pending.append((event, then))
            self._alarm.set()

    @property
    def _room(self) -> int:
        return MAX_PENDING if self._is_heard else MAX_BATCH

    async def run(self) -> None:
        """Publish until cancelled."""
        self._alarm.set()
        while True:
            await self._alarm.wait(3600.0)
            while self._pending:
                batch, self._pending = self._pending[:MAX_BATCH], self._pending[MAX_BATCH:]
                await self._announce([event for event, _ in batch])
                for _, then in batch:
                    then()
                self._shed()

    def _shed(self) -> None:
        """Let go of what waits beyond the room that there is."""
        shed, self._pending = self._pending[self._room :], self._pending[: self._room]
        if shed:
            self._log_undelivered([event for event, _ in shed], "too many events wait")
        for _, then in shed:
            then()

    def clear(self) -> None:
        """Forget what waits; its callbacks are not called."""
        self._pending.clear()

    async def _announce(self, events: list[Event]) -> None:
        left, why = events, ""
        give_up_at = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        for number in range(TRIES if self._is_heard else 1):
            if number:
                await asyncio.sleep(FIRST_BACKOFF_SECONDS * 2.0**number * (0.5 + self._random() / 2))
            seconds_left = give_up_at - asyncio.get_running_loop().time()
            if seconds_left <= 0:
                break
            left, why = await self._try(left, seconds_left)
            if not left:
                break
        self._is_heard = not left
        published = len(events) - len(left)
        self._stats.events_published += published
        if published:
            log.info("events published", extra={"action": "event.published", "events": published})
        if left:
            self._log_undelivered(left, why)

    async def _try(self, events: list[Event], timeout_seconds: float) -> tuple[list[Event], str]:
        """Return the events that were not taken, and why."""
        try:
            await asyncio.wait_for(self._offload.run(lambda: self._publisher.publish(events)), timeout_seconds)
        except EventsUndelivered as error:
            return list(error.events), error.message
        except TimeoutError:
            return events, "no response in time"
        except Exception as error:  # a publisher's bug must not stop what comes after it
            log.error("publishing failed", exc_info=error, extra={"action": "event.crashed"})
            return events, type(error).__name__
        return [], ""

    def _log_undelivered(self, events: Sequence[Event], why: str) -> None:
        self._stats.events_undelivered += len(events)
        for event in events:
            log.error(
                "an event could not be published",
                extra={"action": "event.undelivered", "error": why, "event": event.document()},
            )
