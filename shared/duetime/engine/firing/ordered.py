"""Ordered delivery: as at-least-once, but a policy decides beside the event loop whose turn it is."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from duetime.delivery.port import Callback, CallbackResult
from duetime.domain.outcomes import Outcome
from duetime.domain.timers import Timer
from duetime.engine.batching import Batcher, Gathering, bug_in, refusal
from duetime.engine.context import EngineContext
from duetime.engine.delivery import Attempt, Launcher
from duetime.engine.firing.at_least_once import AtLeastOnceDelivery
from duetime.engine.firing.ordering_policy import Decision, OrderingPolicy
from duetime.engine.in_flight import Deferrals, InFlight
from duetime.engine.namespace_cache import NamespaceCache
from duetime.engine.response.classify import Classification
from duetime.engine.response.decide import failed_as, put_off
from duetime.engine.response.record import Recorder

log = logging.getLogger(__name__)


class OrderedDelivery(AtLeastOnceDelivery):
    """Of webhook deliveries. All but the policy's own work runs in the event loop's thread."""

    def __init__(
        self,
        policy: OrderingPolicy,
        context: EngineContext,
        recorder: Recorder,
        namespaces: NamespaceCache,
        *,
        in_flight: InFlight,
        deferrals: Deferrals,
        launcher: Launcher,
    ) -> None:
        super().__init__(context, recorder, namespaces)
        self._policy = policy
        self._in_flight = in_flight
        self._deferrals = deferrals
        self._launcher = launcher
        self._is_starting = True
        offload = context.threads.make(1, "duetime-ordering")
        at_once = Gathering(context.settings.record_batch_size, linger_seconds=0.0)
        self._decisions: Batcher[Attempt, Decision] = Batcher(
            lambda batch: policy.admit([each.timer for each in batch], now=context.clock.now()),
            context,
            offload,
            action="delivery.retried",
            on_written=self._take_decisions,
            on_refused=self._postpone,
            on_given_up=self._take_back,
            is_wanted=self._may_start,
            gathering=at_once,
        )
        self._untold: Batcher[Outcome, None] = Batcher(
            self._tell_recorded,
            context,
            offload,
            action="delivery.retried",
            on_written=lambda batch, results: None,  # noqa: ARG005
            on_refused=lambda outcome, error: self._log_refused(outcome.timer, error),
            on_given_up=lambda batch: None,  # noqa: ARG005 (who waits for them looks by itself after a while)
            gathering=at_once,
        )

    def takes(self, namespace: str) -> bool:
        return self._policy.takes(namespace)

    # -- life ------------------------------------------------------------------------------------------------

    def begin(self, ends_at: float | None) -> None:  # noqa: ARG002
        self._is_starting = True

    def stop_starting(self) -> None:
        self._is_starting = False

    def retry(self) -> None:
        self._decisions.retry()
        self._untold.retry()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._decisions.run())
            group.create_task(self._untold.run())

    @property
    def starting(self) -> int:
        return self._decisions.backlog

    @property
    def is_idle(self) -> bool:
        return super().is_idle and not self._untold.backlog

    # -- before it is sent -----------------------------------------------------------------------------------

    def start(self, attempt: Attempt, now: datetime) -> Callback | None:  # noqa: ARG002
        self._decisions.add(attempt)
        return None

    def _may_start(self, attempt: Attempt) -> bool:
        return self._is_starting and attempt.shard.is_trusted(self._context.clock.monotonic())

    def _take_decisions(self, batch: Sequence[Attempt], decisions: Sequence[Decision]) -> None:
        self._launcher.send(
            [(each, self._take(each, decision)) for each, decision in zip(batch, decisions, strict=True)]
        )

    def _take(self, attempt: Attempt, decision: Decision) -> Callback | None:
        """What is to be sent."""
        timer = attempt.timer
        if decision.callback is not None:
            if self._may_start(attempt):
                return replace(decision.callback, key=attempt.number)
            self._in_flight.settle(attempt)
        elif decision.failure is not None:
            now, settings = self._context.clock.now(), self._context.settings
            self._recorder.record(attempt, failed_as(timer, decision.failure, now=now, settings=settings))
        else:
            assert decision.wait_until is not None
            self._recorder.record(attempt, put_off(timer, until=decision.wait_until))
        return None

    def _postpone(self, attempt: Attempt, error: Exception) -> None:
        """Nothing was sent for it, and it stays due."""
        self._log_refused(attempt.timer, error)
        self._deferrals.put_back(attempt)
        self._launcher.send([(attempt, None)])

    def _take_back(self, batch: Sequence[Attempt]) -> None:
        """They stay due."""
        for attempt in batch:
            self._in_flight.settle(attempt)
        self._launcher.send([(attempt, None) for attempt in batch])

    # -- after it was sent -----------------------------------------------------------------------------------

    def _classify(self, result: CallbackResult, now: datetime) -> Classification:
        return self._policy.classify(result, now=now)

    def recorded(self, outcome: Outcome) -> None:
        if outcome.is_put_off or outcome.expires_at is not None:
            self._untold.add(outcome)

    def _tell_recorded(self, batch: Sequence[Outcome]) -> list[None]:
        """In a thread."""
        self._policy.recorded(batch, now=self._context.clock.now())
        return [None] * len(batch)

    # -- log lines -------------------------------------------------------------------------------------------

    def _log_refused(self, timer: Timer, error: Exception) -> None:
        self._context.stats.record_refused += 1
        log.error(
            "the store refuses what a delivery needs; the others go on",
            exc_info=bug_in(error),
            extra={"action": "delivery.refused", **refusal(timer, error)},
        )
