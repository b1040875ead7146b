"""At-least-once delivery: send the callback, then record what its response means."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import datetime

from duetime.delivery.port import Callback, CallbackResult
from duetime.delivery.request import callback_for
from duetime.domain.answers import waiting_attempt
from duetime.domain.outcomes import Outcome
from duetime.domain.timers import FailureReason, Timer, TimerState
from duetime.engine.batching import timer_facts
from duetime.engine.context import EngineContext
from duetime.engine.delivery import Attempt, AttemptState, Delivery
from duetime.engine.in_flight import InFlight
from duetime.engine.keys import queue_key
from duetime.engine.namespace_cache import NamespaceCache, NamespaceView
from duetime.engine.response.classify import Classification, Disposition, classify
from duetime.engine.response.decide import outcome_of, outcome_of_waiting
from duetime.engine.response.record import Recorder
from duetime.engine.shards.reading import Span
from duetime.engine.shards.shard import ShardState

log = logging.getLogger(__name__)

_UNREAD = Classification(Disposition.RETRY, reason=FailureReason.NOT_OK, message="the response could not be read")


class AtLeastOnceDelivery(Delivery):
    """Of all timers that no other strategy takes."""

    def __init__(
        self, context: EngineContext, recorder: Recorder, namespaces: NamespaceCache, *, in_flight: InFlight
    ) -> None:
        self._context = context
        self._recorder = recorder
        self._namespaces = namespaces
        self._in_flight = in_flight

    def skips_queue(self, shard: ShardState, timer: Timer, page: Span, *, now: datetime) -> bool:
        """Record what an answer means, or that none came in time: nothing is sent, so no limit may delay it."""
        view = self._namespaces.get(timer.namespace)
        if timer.state is not TimerState.WAITING or view is None or not view.is_readable:
            return False  # without its retry policy nobody knows what an answer means
        attempt = self._in_flight.take(self, shard, timer, queue_key(timer), page, self._context.clock.monotonic())
        attempt.fired_at = waiting_attempt(timer).started_at
        outcome = outcome_of_waiting(
            timer,
            now=now,
            settings=self._context.settings,
            default_policy=view.retry_policy,
            random=self._context.random(),
        )
        self._record(attempt, outcome)
        return True

    def start(self, attempt: Attempt, now: datetime) -> Callback | None:
        view = self._namespaces.get(attempt.timer.namespace) or NamespaceView()
        attempt.default_policy = view.retry_policy
        return callback_for(
            attempt.timer, key=attempt.number, fired_at=now, signer=view.signer, urls=self._namespaces.firing_urls
        )

    def park(self, attempt: Attempt) -> None:
        if attempt.state is AttemptState.SENT:
            self._recorder.park(attempt)

    def finish(self, attempt: Attempt, result: CallbackResult, now: datetime) -> None:
        if attempt.state is AttemptState.PARKING:
            attempt.result = result  # taken when that is known: the outcome is for the parked revision
        elif attempt.state is not AttemptState.SUPERSEDED:
            self._record(attempt, self._outcome_of(attempt, result, now))

    def _record(self, attempt: Attempt, outcome: Outcome) -> None:
        self._recorder.record(attempt, outcome)

    def _outcome_of(self, attempt: Attempt, result: CallbackResult, now: datetime) -> Outcome:
        try:
            classification = self._classify(result, now)
            outcome = self._decide(attempt, classification, result, now)
        except Exception:  # one response that nobody foresaw must not cost the others, nor its timer
            log.exception(
                "a response could not be read; its timer is retried",
                extra={"action": "timer.response_unread", **timer_facts(attempt.timer)},
            )
            return self._decide(attempt, _UNREAD, replace(result, body=b"", head=()), now)
        is_unfollowed = classification.message and classification.request is None
        if classification.disposition is Disposition.FIRED and is_unfollowed:
            # The receiver was satisfied, but asked for something that cannot be done.
            log.warning(
                classification.message, extra={"action": "timer.response_unfollowed", **timer_facts(attempt.timer)}
            )
        return outcome

    def _classify(self, result: CallbackResult, now: datetime) -> Classification:
        return classify(result, now=now)

    def _decide(
        self, attempt: Attempt, classification: Classification, result: CallbackResult, now: datetime
    ) -> Outcome:
        is_rescheduled = classification.disposition is Disposition.RESCHEDULE
        outcome = outcome_of(
            attempt.timer,
            classification,
            result=result,
            fired_at=attempt.fired_at,
            now=now,
            settings=self._context.settings,
            default_policy=attempt.default_policy,
            random=self._context.random(),
            new_firing_id=self._context.new_id() if is_rescheduled else "",
        )
        return outcome if classification.request is None else replace(outcome, request=classification.request)
