"""At-least-once delivery of timers about which something is decided beside the event loop, before they are sent."""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar

from duetime.delivery.port import Callback
from duetime.domain.timers import Timer
from duetime.engine.batching import Batcher, Gathering, bug_in, refusal
from duetime.engine.context import EngineContext
from duetime.engine.delivery import Attempt, Launcher
from duetime.engine.firing.at_least_once import AtLeastOnceDelivery
from duetime.engine.in_flight import Deferrals, InFlight
from duetime.engine.namespace_cache import NamespaceCache
from duetime.engine.response.record import Recorder
from duetime.engine.waiting import Offload

log = logging.getLogger(__name__)

D = TypeVar("D")


class DecidedDelivery(AtLeastOnceDelivery, Generic[D]):
    """``decide_later`` in ``start`` leads to ``_decide_all`` in a thread, and to ``_take`` in the event loop's."""

    def __init__(
        self,
        context: EngineContext,
        recorder: Recorder,
        namespaces: NamespaceCache,
        *,
        in_flight: InFlight,
        deferrals: Deferrals,
        launcher: Launcher,
        offload: Offload,
    ) -> None:
        super().__init__(context, recorder, namespaces, in_flight=in_flight)
        self._deferrals = deferrals
        self._launcher = launcher
        self._is_starting = True
        self._decisions: Batcher[Attempt, D] = Batcher(
            lambda batch: self._decide_all([each.timer for each in batch]),
            context,
            offload,
            action="delivery.retried",
            on_written=self._take_all,
            on_refused=self._postpone,
            on_given_up=self._take_back,
            is_wanted=self._may_start,
            gathering=self._at_once,
        )

    @property
    def _at_once(self) -> Gathering:
        return Gathering(self._context.settings.record_batch_size, linger_seconds=0.0)

    @abstractmethod
    def _decide_all(self, timers: Sequence[Timer]) -> list[D]:
        """In a thread. After it has raised it is called again: with the same timers while the store cannot be used,
        else with parts of them."""

    @abstractmethod
    def _take(self, attempt: Attempt, decision: D) -> Callback | None:
        """Return what is to be sent. None: the attempt has been recorded or settled."""

    # -- life ------------------------------------------------------------------------------------------------

    def begin(self, ends_at: float | None) -> None:  # noqa: ARG002
        self._is_starting = True

    def stop_starting(self) -> None:
        self._is_starting = False

    def retry(self) -> None:
        self._decisions.retry()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for each in self._batchers():
                group.create_task(each.run())

    def _batchers(self) -> tuple[Batcher, ...]:  # type: ignore[type-arg]  # of whatever
        return (self._decisions,)

    @property
    def starting(self) -> int:
        return self._decisions.backlog

    # -- before it is sent -----------------------------------------------------------------------------------

    def decide_later(self, attempt: Attempt) -> None:
        self._decisions.add(attempt)

    def _may_start(self, attempt: Attempt) -> bool:
        return self._is_starting and attempt.shard.is_trusted(self._context.clock.monotonic())

    def _take_all(self, batch: Sequence[Attempt], decisions: Sequence[D]) -> None:
        self._launcher.send(
            [(each, self._take(each, decision)) for each, decision in zip(batch, decisions, strict=True)]
        )

    def _postpone(self, attempt: Attempt, error: Exception) -> None:
        """Leave it due: nothing was sent for it."""
        self._log_refused(attempt.timer, error)
        self._deferrals.put_back(attempt)
        self._launcher.send([(attempt, None)])

    def _take_back(self, batch: Sequence[Attempt]) -> None:
        """Leave them due."""
        for attempt in batch:
            self._in_flight.settle(attempt)
        self._launcher.send([(attempt, None) for attempt in batch])

    def _log_refused(self, timer: Timer, error: Exception) -> None:
        self._context.stats.record_refused += 1
        log.error(
            "the store refuses what a delivery needs; the others go on",
            exc_info=bug_in(error),
            extra={"action": "delivery.refused", **refusal(timer, error)},
        )
