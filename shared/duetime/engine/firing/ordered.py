"""Ordered delivery: as at-least-once, but a policy decides beside the event loop whose turn it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from duetime.delivery.port import Callback, CallbackResult
from duetime.domain.outcomes import Outcome
from duetime.domain.timers import Timer
from duetime.engine.batching import Batcher
from duetime.engine.context import EngineContext
from duetime.engine.delivery import Attempt, Launcher
from duetime.engine.firing.decided import DecidedDelivery
from duetime.engine.firing.ordering_policy import Decision, OrderingPolicy
from duetime.engine.in_flight import Deferrals, InFlight
from duetime.engine.namespace_cache import NamespaceCache
from duetime.engine.response.classify import Classification
from duetime.engine.response.decide import failed_as, put_off
from duetime.engine.response.record import Recorder


class OrderedDelivery(DecidedDelivery[Decision]):
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
        self._policy = policy
        offload = context.threads.make(1, "duetime-ordering")
        super().__init__(
            context,
            recorder,
            namespaces,
            in_flight=in_flight,
            deferrals=deferrals,
            launcher=launcher,
            offload=offload,
        )
        self._untold: Batcher[Outcome, None] = Batcher(
            self._tell_recorded,
            context,
            offload,
            action="delivery.retried",
            on_written=lambda batch, results: None,  # noqa: ARG005
            on_refused=lambda outcome, error: self._log_refused(outcome.timer, error),
            on_given_up=lambda batch: None,  # noqa: ARG005 (who waits for them looks by itself after a while)
            gathering=self._at_once,
        )

    def takes(self, namespace: str) -> bool:
        return self._policy.takes(namespace)

    # -- life ------------------------------------------------------------------------------------------------

    def retry(self) -> None:
        super().retry()
        self._untold.retry()

    def _batchers(self) -> tuple[Batcher, ...]:  # type: ignore[type-arg]  # of whatever
        return (*super()._batchers(), self._untold)

    @property
    def is_idle(self) -> bool:
        return super().is_idle and not self._untold.backlog

    # -- before it is sent -----------------------------------------------------------------------------------

    def start(self, attempt: Attempt, now: datetime) -> Callback | None:  # noqa: ARG002
        self.decide_later(attempt)
        return None

    def _decide_all(self, timers: Sequence[Timer]) -> list[Decision]:
        return self._policy.admit(timers, now=self._context.clock.now())

    def _take(self, attempt: Attempt, decision: Decision) -> Callback | None:
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
