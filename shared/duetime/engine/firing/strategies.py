"""Chooses how timers are delivered: schedules as such, others by their namespace."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from duetime.domain.timers import Timer
from duetime.engine.context import EngineContext
from duetime.engine.delivery import Delivery, Launcher
from duetime.engine.firing.at_least_once import AtLeastOnceDelivery
from duetime.engine.firing.at_most_once import AtMostOnceDelivery
from duetime.engine.firing.call_submission import CallSubmission
from duetime.engine.firing.execution_handler import ExecutionHandler
from duetime.engine.firing.ordered import OrderedDelivery
from duetime.engine.firing.ordering_policy import OrderingPolicy
from duetime.engine.firing.recurring import RecurringDelivery
from duetime.engine.firing.submitting import SubmittingDelivery
from duetime.engine.in_flight import Deferrals, HeldPayloads, InFlight
from duetime.engine.namespace_cache import NamespaceCache
from duetime.engine.response.record import Recorder
from duetime.stores.core.schedules import ScheduleStore


class Strategies:
    """Those of one poller. Iterating gives each once."""

    def __init__(
        self,
        context: EngineContext,
        recorder: Recorder,
        namespaces: NamespaceCache,
        *,
        in_flight: InFlight,
        payloads: HeldPayloads,
        deferrals: Deferrals,
        launcher: Launcher,
        schedules: ScheduleStore,
        handler: ExecutionHandler | None,
        ordering: OrderingPolicy | None,
        submission: CallSubmission | None,
    ) -> None:
        """Make one of each kind. ``handler``, ``ordering``, ``submission`` None: no timer here is an execution, a
        webhook delivery, or a schedule that submits service calls.
        """
        self._at_least_once = AtLeastOnceDelivery(context, recorder, namespaces, in_flight=in_flight)
        self._recurring = RecurringDelivery(
            schedules, context, recorder, namespaces, in_flight=in_flight, deferrals=deferrals, launcher=launcher
        )
        self._submitting: Delivery | None = None
        self._special: list[Delivery] = []
        """They take the timers of internal namespaces, each those of its own."""
        if submission is not None:
            self._submitting = SubmittingDelivery(
                submission,
                schedules,
                context,
                recorder,
                namespaces,
                in_flight=in_flight,
                deferrals=deferrals,
                launcher=launcher,
            )
        if handler is not None:
            at_most_once = AtMostOnceDelivery(
                handler,
                context,
                recorder,
                in_flight=in_flight,
                payloads=payloads,
                deferrals=deferrals,
                launcher=launcher,
            )
            self._special.append(at_most_once)
        if ordering is not None:
            ordered = OrderedDelivery(
                ordering,
                context,
                recorder,
                namespaces,
                in_flight=in_flight,
                deferrals=deferrals,
                launcher=launcher,
            )
            self._special.append(ordered)
        submitting = () if self._submitting is None else (self._submitting,)
        self._all: tuple[Delivery, ...] = (self._at_least_once, self._recurring, *submitting, *self._special)
        self.strategy_of = lru_cache(maxsize=4096)(self._strategy_of)
        """That of a namespace's timers which are no schedules."""

    def __iter__(self) -> Iterator[Delivery]:
        return iter(self._all)

    def strategy_for(self, timer: Timer) -> Delivery:
        if timer.schedule is None:
            return self.strategy_of(timer.namespace)
        return self._submitting if self._submitting is not None and timer.submits_call else self._recurring

    def _strategy_of(self, namespace: str) -> Delivery:
        for delivery in self._special:
            if delivery.takes(namespace):
                return delivery
        return self._at_least_once
