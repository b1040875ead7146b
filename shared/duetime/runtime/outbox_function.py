"""The outbox on Lambda: started by the stream of the table of service calls, and by a schedule.

Two events are understood:

- A batch of the stream. Each record that tells of new events names a call, and nothing more is taken from it: what is
  to be published, and in which order, is read from the table. So records may come late, twice or in any order.
- EventBridge's scheduled event: publish what is older than ``sweep_after_seconds`` and still waits, whatever became
  of its record, and remove calls that have expired.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, Protocol

from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response
from aws_lambda_powertools.utilities.data_classes.dynamo_db_stream_event import DynamoDBRecord

from duetime.calls.publishing import EventPublisher, publish_in_order, ref_of
from duetime.domain.call_steps import DeletionReason, NewId, deleted
from duetime.domain.clock import Clock
from duetime.domain.errors import DuetimeError, InvalidInput, StoreError
from duetime.domain.times import round_down
from duetime.runtime.logs import LogContext
from duetime.stores.backends.dynamodb.stream import read_record
from duetime.stores.core.calls import CallStore
from duetime.stores.core.outbox import Outbox
from duetime.stores.port.calls import CallRef
from duetime.stores.port.outbox import OutboxEvent

logger = logging.getLogger(__name__)

PAGE = 200
"""Events read and published in one go."""
DEADLINE_MARGIN_SECONDS = 20.0
"""How long before Lambda's own deadline nothing more is begun: what a page takes at the worst."""


class LambdaContext(Protocol):
    """The part of Lambda's context object that is used."""

    aws_request_id: str

    def get_remaining_time_in_millis(self) -> int: ...


Report = Callable[[Mapping[str, tuple[str, float]]], None]
"""Takes metrics: by name the unit and the value."""


class EventsWait(DuetimeError):
    """A record's call has events that could not be published: Lambda is to send the record again."""

    code = "events_wait"


class SweepFailed(DuetimeError):
    """Events wait, and a sweep could not publish them."""

    code = "sweep_failed"


@dataclass(slots=True)
class _Work:
    """Counts what one invocation did."""

    published: int = 0
    failed: dict[CallRef, str] = field(default_factory=dict)


class OutboxFunction:
    """The Lambda handler. Kept, with its connections, between the invocations of one execution environment."""

    def __init__(
        self,
        outbox: Outbox,
        publishers: Sequence[EventPublisher],
        *,
        calls: CallStore,
        clock: Clock,
        report: Report,
        sweep_after_seconds: float,
        new_id: NewId,
        keep_time: Callable[[], None] = lambda: None,
    ) -> None:
        """``keep_time`` sees to it that ``clock`` is right."""
        self._new_id = new_id
        self._outbox = outbox
        self._calls = calls
        self._publishers = publishers
        self._clock = clock
        self._keep_time = keep_time
        self._report = report
        self._sweep_after = timedelta(seconds=sweep_after_seconds)

    def __call__(self, event: Mapping[str, Any], context: LambdaContext) -> dict[str, Any]:
        """Return Lambda's ``batchItemFailures`` of a batch, or the result of a sweep.

        Raises ``InvalidInput`` for another event, and for a sweep ``StoreError`` and ``SweepFailed``.
        """
        remaining_seconds = context.get_remaining_time_in_millis() / 1000
        deadline = self._clock.monotonic() + remaining_seconds - DEADLINE_MARGIN_SECONDS
        with LogContext(request_id=context.aws_request_id):
            self._keep_time()
            if event.get("detail-type") == "Scheduled Event":
                return self._sweep(deadline)
            records = event.get("Records")
            if not isinstance(records, list):
                raise InvalidInput("", "expected a batch of a DynamoDB stream or EventBridge's scheduled event")
            return self._take_batch(records, deadline)

    # -- the stream ------------------------------------------------------------------------------------------

    def _take_batch(self, records: Sequence[dict[str, Any]], deadline: float) -> dict[str, Any]:
        refs: dict[str, CallRef] = {}
        for record in records:
            try:
                change = read_record(record)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                # It will not be readable next time either, and the sweep needs no record.
                _tell_unreadable(error)
                continue
            if change is not None:
                refs[_sequence_number(record)] = change.ref
        work = self._publish_calls(list(dict.fromkeys(refs.values())), deadline)
        self._tell(work)

        def report(record: DynamoDBRecord) -> None:
            ref = refs.get(_sequence_number(record.raw_event))
            if ref in work.failed:
                raise EventsWait(work.failed[ref])

        # A batch that failed as a whole is reported too: an error would make Lambda repeat what was published.
        processor = BatchProcessor(EventType.DynamoDBStreams, raise_on_entire_batch_failure=False)
        return dict(process_partial_response({"Records": records}, report, processor))

    def _publish_calls(self, refs: Sequence[CallRef], deadline: float) -> _Work:
        """Publish all that waits of these calls, a page of the first event of each and so on at a time."""
        work = _Work()
        waiting = list(refs)
        while waiting:
            if self._clock.monotonic() >= deadline:
                work.failed |= dict.fromkeys(waiting, "no time left")
                break
            found: list[OutboxEvent] = []
            full: list[CallRef] = []
            for ref in waiting:
                try:
                    page = self._outbox.unpublished_of(ref, limit=PAGE)
                except StoreError as error:
                    work.failed[ref] = error.code
                    _warn_of_store(error)
                else:
                    found += page
                    if len(page) == PAGE:
                        full.append(ref)
            self._publish(found, work)
            waiting = [ref for ref in full if ref not in work.failed]
        return work

    def _publish(self, found: Sequence[OutboxEvent], work: _Work) -> None:
        published = publish_in_order(found, self._publishers)
        work.failed |= published.failed
        if not published.taken:
            return
        try:
            self._outbox.mark_published(published.taken, now=self._clock.now())
        except StoreError as error:
            _warn_of_store(error)
            work.failed |= {ref_of(stored.event): error.code for stored in published.taken}
        else:
            work.published += len(published.taken)

    # -- the sweep -------------------------------------------------------------------------------------------

    def _sweep(self, deadline: float) -> dict[str, Any]:
        work = _Work()
        started_at = self._clock.now()
        before = started_at - self._sweep_after
        oldest_seconds = 0.0
        while self._clock.monotonic() < deadline:
            page = self._outbox.unpublished(limit=PAGE, skip=frozenset(work.failed))
            lost = [stored for stored in page if stored.event.occurred_at < before]
            for stored in lost:
                oldest_seconds = max(oldest_seconds, (started_at - stored.event.occurred_at).total_seconds())
            self._publish(lost, work)
            if len(page) < PAGE or not lost:
                break
        self._remove_expired(deadline)
        self._tell(work, {"OutboxOldest": ("Seconds", oldest_seconds)})
        summary = {"published": work.published, "failedCalls": len(work.failed), "oldestSeconds": oldest_seconds}
        if work.published or work.failed:
            logger.warning("events that their records did not lead to", extra={"action": "outbox.swept", **summary})
        if work.failed:
            raise SweepFailed(f"events of {len(work.failed)} calls wait: {next(iter(work.failed.values()))}")
        return summary

    def _remove_expired(self, deadline: float) -> None:
        """Remove calls that have expired, each with the event that tells of it."""
        while self._clock.monotonic() < deadline:
            now = round_down(self._clock.now())
            event_of = partial(deleted, reason=DeletionReason.EXPIRY, new_id=self._new_id, now=now)
            if self._calls.prune(now=now, events_published_before=now, limit=PAGE, event_of=event_of) < PAGE:
                break

    # -- both ------------------------------------------------------------------------------------------------

    def _tell(self, work: _Work, more: Mapping[str, tuple[str, float]] | None = None) -> None:
        counts = {"EventsPublished": work.published, "EventsRefused": len(work.failed)}
        metrics = {name: ("Count", float(count)) for name, count in counts.items() if count}
        if metrics or more:
            self._report({**metrics, **(more or {})})
        for ref, reason in list(work.failed.items())[:10]:  # a flood says the same over and over
            logger.warning(
                "an event was not published; it is tried again, and its call's later events wait",
                extra={
                    "action": "outbox.publish_failed",
                    "tenant_id": ref.tenant_id,
                    "call_id": ref.call_id,
                    "error": reason,
                },
            )


def _sequence_number(record: Mapping[str, Any]) -> str:
    return str(record.get("dynamodb", {}).get("SequenceNumber", ""))


def _tell_unreadable(error: Exception) -> None:
    logger.error(
        "a record of the stream could not be read",
        extra={"action": "outbox.record_unreadable", "error": type(error).__name__},
    )


def _warn_of_store(error: StoreError) -> None:
    logger.warning(
        "the outbox could not be read or written; it is tried again",
        extra={"action": "outbox.store_failed", "error": error.code},
    )
