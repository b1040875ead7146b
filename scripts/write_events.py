"""Writes the examples in docs/events.md and events/service_call_failed.json: ``python -m scripts.write_events``.

The examples are made by the code that makes the events: two calls, one of which succeeds and one fails.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from duetime.domain import call_steps
from duetime.domain.call_events import CallEvent, CallEventType
from duetime.domain.call_steps import CallRules, DeletionReason, ExecutionResult, Transition
from duetime.domain.executions import LoggedMessage
from duetime.domain.namespaces import Namespace
from duetime.domain.service_calls import (
    CallChange,
    CallFailure,
    Method,
    ServiceCall,
    Submission,
    calls_namespace,
    request_spec,
)
from duetime.domain.times import format_instant, to_milliseconds
from duetime.runtime.eventbridge import CALLS_SOURCE

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "events.md"
SAMPLE = ROOT / "events" / "service_call_failed.json"
BEGIN, END = "<!-- examples: made by scripts/write_events.py -->", "<!-- end of examples -->"

START = datetime(2026, 12, 20, 15, 30, tzinfo=UTC)
RULES = CallRules(retention_seconds=30 * 86_400.0)
ABOUT = {
    CallEventType.SUBMITTED: "It was accepted. `url` is without its query; `rerunOf` is the call that it repeats.",
    CallEventType.SCHEDULED: "Its due time was set, also anew.",
    CallEventType.UPDATED: "`changed` names what is new: `name`, `tags`, `starred`, `dueAt`, `request.method`,"
    " `request.url`, `request.headers`, `request.body`. Headers and body are not shown, nor the query of `url`."
    " It may come at any time, also after the end.",
    CallEventType.DUE_TIME_REACHED: "Once for each due time, when its due time was found reached.",
    CallEventType.RUNNING: "It has begun: its status is Running.",
    CallEventType.EXECUTION_STARTED: "An attempt begins; `number` counts from 1.",
    CallEventType.EXECUTION_SUCCEEDED: "The attempt ended with a 2xx.",
    CallEventType.EXECUTION_FAILED: "It did not; `nextAttemptAt` is null when there will be no other.",
    CallEventType.SUCCEEDED: "Its status is Succeeded.",
    CallEventType.FAILED: "Its status is Failed; `reason`: HttpStatus, Timeout, Network, RefusedUrl, RefusedAddress.",
    CallEventType.CANCELLED: "Its status is Cancelled: it was cancelled before it was sent, or between two attempts."
    " `executionId` and `status` are of the last attempt, null before the first.",
    CallEventType.DELETED: "The last one, after the end: it was removed by `request` or by `expiry` (`reason`). It"
    " is published and delivered, though `GET .../events` of a call that is gone shows nothing.",
}
"""In the order in which they come."""


def ids(last: int) -> Callable[[datetime], str]:
    """Return what makes UUIDv7s that are the same every time."""
    numbers = iter(range(last, last + 1000))

    def make(at: datetime) -> str:
        stamp = f"{to_milliseconds(at):012x}"
        number = next(numbers) * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFF
        return f"{stamp[:8]}-{stamp[8:]}-7{number & 0xFFF:03x}-8{number >> 12 & 0xFFF:03x}-{number:012x}"

    return make


def life(statuses: tuple[int | None, ...], seed: int) -> Iterator[CallEvent]:
    """Return the events of a call whose attempts end with ``statuses``; None: without an answer in time. Of one
    that is changed and cancelled when there are none."""
    make = ids(seed)
    now = START

    def new_id() -> str:
        return make(now)

    namespace = Namespace(calls_namespace("acme"), num_shards=16, first_shard=0, dedicated=False, created_at=START)
    url = "https://billing.example.com/invoices/4711"
    submission = Submission(
        name="invoice 4711",
        request=request_spec(method=Method.POST, url=f"{url}?token=secret", headers_json=None, body_json=None),
        digest="",
        due_at=START + timedelta(hours=1),
        timeout_seconds=30,
        retry_policy_json='{"maxAttempts":2,"initialInterval":"30s"}',
        correlation_id="order-4711",
        tags=("billing",),
    )
    step = call_steps.submitted("acme", new_id(), submission, namespace=namespace, new_id=new_id, now=now)
    yield from step.events
    if not statuses:
        now += timedelta(minutes=5)
        change = CallChange(name="invoice 4711, corrected", due_at=START + timedelta(hours=2))
        step = call_steps.amended(step.after, change, new_id=new_id, now=now, rules=RULES)
        yield from step.events
        step = call_steps.cancelled(step.after, new_id=new_id, now=now, rules=RULES)
        yield from step.events
        yield call_steps.deleted(step.after, DeletionReason.EXPIRY, new_id=new_id, now=now + timedelta(days=30))
        return
    now = START + timedelta(hours=1, milliseconds=3)
    for status in statuses:
        step = _begun(step.after, url, new_id, now)
        yield from step.events
        now += timedelta(milliseconds=184)
        step = _concluded(step, status, new_id, now)
        yield from step.events
        now += timedelta(seconds=30)


def _begun(call: ServiceCall, url: str, new_id: Callable[[], str], now: datetime) -> Transition:
    return call_steps.begun(
        call, url=url, sent=LoggedMessage(), execution_id=new_id(), new_id=new_id, now=now, rules=RULES
    )


def _concluded(step: Transition, status: int | None, new_id: Callable[[], str], now: datetime) -> Transition:
    is_ok = status is not None and 200 <= status < 300
    result = ExecutionResult(
        response_status=status,
        response=None,
        duration_ms=181,
        failure=None if is_ok else CallFailure.HTTP_STATUS,
        message="" if is_ok else f"the receiver answered with status {status}",
    )
    return call_steps.concluded(
        step.after, step.executions[0], result, new_id=new_id, now=now, rules=RULES, random=0.5
    )


def examples() -> dict[CallEventType, CallEvent]:
    """Make one event of each type."""
    found: dict[CallEventType, CallEvent] = {}
    for event in (*life((503, 204), 1), *life((503, 503), 500), *life((), 900)):
        found.setdefault(event.type, event)
    return found


def render_page(page: str) -> str:
    """Render ``page`` with the examples as they are now."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    made = examples()
    parts = [
        "The envelope, whole:",
        _block(made[CallEventType.FAILED].document()),
        "The types in the order in which they come, with their `payload`:",
        *(
            f"**`{event_type}`** {about}\n\n{_block(made[event_type].document()['payload'])}"
            for event_type, about in ABOUT.items()
        ),
    ]
    return f"{before}{BEGIN}\n\n" + "\n\n".join(parts) + f"\n\n{END}{after}"


def _block(value: Any) -> str:
    return f"```json\n{json.dumps(value, indent=2)}\n```"


def render_sample() -> str:
    """Render what EventBridge delivers when a service call fails."""
    event = examples()[CallEventType.FAILED]
    document = {
        "version": "0",
        "id": "3c2f7a0e-2f6b-4b0e-9d55-6a1d2f0c9b18",
        "detail-type": str(event.type),
        "source": CALLS_SOURCE,
        "account": "123456789012",
        "time": format_instant(event.occurred_at)[:19] + "Z",
        "region": "eu-central-1",
        "resources": [],
        "detail": event.document(),
    }
    return json.dumps(document, indent=2) + "\n"


if __name__ == "__main__":
    PAGE.write_text(render_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    SAMPLE.write_text(render_sample(), encoding="utf-8")
