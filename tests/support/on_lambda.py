"""Invocations of the poller's function on Lambda, side by side in virtual time."""

from __future__ import annotations

import asyncio
import itertools
import threading
from dataclasses import dataclass, field
from typing import Any

from duetime.domain.clock import Clock
from duetime.engine.settings import EngineSettings
from duetime.engine.stats import EngineSnapshot
from duetime.runtime.poller_function import PollerFunction
from duetime.runtime.settings import PollerSettings
from duetime.runtime.waking import FanOutFailed
from duetime.stores.core.store import Store
from duetime.testing.virtual_time import InlineOffload, VirtualClock
from tests.support.engine import make_poller
from tests.support.scripted_sender import ScriptedSender

TICK = {"detail-type": "Scheduled Event"}
LEASE_SECONDS = 10.0
COLD_START_SECONDS = 0.5


@dataclass
class Context:
    clock: Clock
    ends: float
    aws_request_id: str = "request"
    invoked_function_arn: str = "arn"

    def get_remaining_time_in_millis(self) -> int:
        return int((self.ends - self.clock.monotonic()) * 1000)


class NoBackground:
    """Nothing is done beside polling."""

    def run(self, stop: threading.Event, *, may_wait: bool) -> None:
        pass


class NoReports:
    def report(self, snapshot: EngineSnapshot, **properties: object) -> None:
        pass


@dataclass
class Lambda:
    """Runs invocations side by side, each with a poller of its own."""

    store: Store
    clock: VirtualClock
    sender: ScriptedSender
    settings: PollerSettings
    poll_interval_seconds: float = 5.0
    """Where all timers are known from the start, seldom polls save nothing but time."""
    timeout_seconds: float = 900.0
    is_throttled: bool = False
    running: dict[str, asyncio.Task[dict[str, Any]]] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    """How long each invocation took that has ended."""
    numbers: itertools.count[int] = field(default_factory=itertools.count)

    def invoke(self, arn: str, event: dict[str, Any]) -> None:
        if self.is_throttled:
            raise FanOutFailed("throttled")
        name = f"poller-{next(self.numbers)}"
        self.running[name] = asyncio.create_task(self._run(name, event))

    async def _run(self, name: str, event: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(COLD_START_SECONDS)
        engine = EngineSettings(
            drain_seconds=self.settings.drain_seconds,
            lease_seconds=LEASE_SECONDS,
            poll_interval_seconds=self.poll_interval_seconds,
            min_poll_interval_seconds=self.poll_interval_seconds / 2,
        )
        poller = make_poller(
            self.store, self.sender.for_another_poller(), self.clock, worker_id=name, settings=engine
        )
        function = PollerFunction(
            poller,
            self.store,
            clock=self.clock,
            settings=self.settings,
            invoke=self.invoke,
            reporter=NoReports(),
            owner_id=f"{name}-seat",
            offload=InlineOffload(),
            background=NoBackground(),
            background_offload=InlineOffload(),
        )
        started = self.clock.monotonic()
        try:
            async with asyncio.timeout(self.timeout_seconds):
                return await function.invocation(event, Context(self.clock, started + self.timeout_seconds))
        finally:
            self.seconds.append(self.clock.monotonic() - started)
            del self.running[name]

    def owners(self) -> set[str]:
        statuses = self.store.leases.statuses(range(4), now=self.clock.now())
        return {status.owner_id for status in statuses if status.owner_id and not status.is_free}

    def kill(self, name: str) -> None:
        """As a crash does: nothing is drained or released."""
        self.running[name].cancel()
