"""From what a client asks for to a timer or a change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from duetime.api.context import ApiContext
from duetime.api.http.parsing import after, check_egress, read_destination, validate
from duetime.api.http.raw_json import RawObject
from duetime.api.http.request import utf8_length
from duetime.api.timers.requests import CallbackFields, RedriveBody, TimerBody, TimerFields, TimerPatch, TimerQuery
from duetime.domain.errors import InvalidInput, PayloadTooLarge
from duetime.domain.ids import check_timer_id
from duetime.domain.namespaces import Namespace
from duetime.domain.retry import read_retry_policy
from duetime.domain.timers import (
    MAX_PAYLOAD_BYTES,
    Timer,
    TimerChange,
    TimerContent,
    TimerState,
    check_message,
    content_digest,
    new_timer,
)
from duetime.domain.times import MILLISECOND
from duetime.recurrence.local_due import LocalDue, due_at, local_due_json
from duetime.recurrence.spec import Dst
from duetime.recurrence.spreading import delay_within
from duetime.stores.port.timers import TimerFilter

_NULL: Final[dict[str, Any]] = {
    field.name: None if field.default is MISSING else field.default
    for field in fields(TimerContent)
    if field.name in TimerFields.model_fields
}
"""What null stands for, by the fields that clients give of a timer's content."""


def check_id(namespace: Namespace, item_id: str, check: Callable[[str, str], str] = check_timer_id) -> str:
    """Return the id of a timer, or of what ``check`` is for. Raises ``InvalidInput``."""
    try:
        return check(namespace.name, item_id)
    except ValueError as error:
        raise InvalidInput("id", str(error)) from None


def read_filter(given: TimerQuery | RedriveBody, *, state: TimerState | None = None) -> TimerFilter:
    return TimerFilter(
        state=state,
        tag=given.tag,
        due_from=given.due_from,
        due_to=given.due_to,
        failure_reason=given.reason,
        updated_from=given.failed_from,
        updated_to=given.failed_to,
    )


def read_timer(
    found: RawObject,
    namespace: Namespace,
    context: ApiContext,
    *,
    timer_id: str | None = None,
    now: datetime,
    spread_ms: int = 0,
) -> Timer:
    """Return the first revision of the timer that ``found`` describes.

    ``timer_id`` is the one in the path, which a body may only repeat; without it the body's counts, or else a
    new one is made. It is due later by its part of ``spread_ms``. Raises ``InvalidInput`` (all faults at once) and
    ``PayloadTooLarge``.
    """
    check_payload_size(found)
    body = validate(TimerBody, found)
    is_put = timer_id is not None
    if is_put and body.id not in (None, timer_id):
        raise InvalidInput("id", "is not the one in the path")
    if timer_id is None:
        timer_id = context.new_id() if body.id is None else body.id
    check_id(namespace, timer_id)
    if body.callback_url is None and body.target is None:
        raise InvalidInput("callbackUrl", "is required, or target")
    check_callback(body, context)
    later = delay_within(spread_ms, timer_id) if spread_ms else timedelta()
    due = _due(body, now, later)
    if due is None:
        raise InvalidInput("executeAt", "is required, or delay or localTime")
    content = given_content(body, execute_at=due.at, timing_json=due.timing_json)
    delay = None if body.delay is None else body.delay + later.total_seconds()
    # A create is the same as long as it asks for the same delay; a put asks for the time that the delay leads to.
    digest = content_digest(content, delay_seconds=None if is_put else delay)
    return new_timer(namespace, timer_id, content, digest=digest, firing_id=context.new_id(), now=now)


class _Due(NamedTuple):
    at: datetime
    timing_json: str | None = None


def _due(given: TimerFields, now: datetime, later: timedelta = timedelta()) -> _Due | None:
    """Return when a timer is to be due, which is ``later`` than what is given; None when nothing is.

    Raises ``InvalidInput``.
    """
    if (given.execute_at, given.delay, given.local_time).count(None) < 2:
        raise InvalidInput("executeAt", "must be the only one of executeAt, delay and localTime")
    if given.local_time is None:
        if given.time_zone is not None or given.dst is not None:
            raise InvalidInput("dst" if given.time_zone is None else "timeZone", "requires localTime")
    else:
        if given.time_zone is None:
            raise InvalidInput("timeZone", "is required with localTime")
        local = LocalDue(given.local_time, given.time_zone, later // MILLISECOND)
        return _Due(due_at(local, given.dst or Dst.ONCE), local_due_json(local))
    if given.delay is not None:
        return _Due(after(now, given.delay + later.total_seconds()))
    if given.execute_at is not None:
        return _Due(after(given.execute_at, later.total_seconds(), "spread") if later else given.execute_at)
    return None


def given_content(body: CallbackFields, *, execute_at: datetime, **others: Any) -> TimerContent:
    """Return the content of a timer that ``body`` and ``others`` describe. Raises as ``check_message``."""
    values = vars(body)
    given = {name: value for name in body.model_fields_set if name in _NULL and (value := values[name]) is not None}
    given["execute_at"] = execute_at
    if body.target is not None:
        given |= target_content(body)
    given |= others
    content = TimerContent(**given)
    check_message(content)
    return content


def target_content(given: CallbackFields) -> dict[str, Any]:
    """Return the fields of ``TimerContent`` that follow from ``target``; none without it."""
    if given.target is None:
        return {}
    return {"callback_url": given.target.arn, "headers_json": given.headers_json}


def read_change(found: RawObject, context: ApiContext, *, now: datetime) -> TimerChange:
    """Return the change that a merge patch asks for; nothing is set when it is empty."""
    check_payload_size(found)
    patch = validate(TimerPatch, found)
    given = patch.model_fields_set
    check_callback(patch, context)
    values = {name: null if getattr(patch, name) is None else getattr(patch, name) for name, null in _NULL.items()}
    change = {name: value for name, value in values.items() if name in given} | target_content(patch)
    due = _due(patch, now)
    if due is not None:
        change |= {"execute_at": due.at, "timing_json": due.timing_json}
    return TimerChange(**change)


def check_callback(given: CallbackFields, context: ApiContext) -> None:
    """Refuse a callback that this deployment does not send, or whose response is not waited for."""
    url = read_destination("callbackUrl", given.callback_url, given.target)
    if url is not None:
        check_egress("callbackUrl", url, context.egress)
    if given.retry_policy_json is not None:
        escalate_url = read_retry_policy(given.retry_policy_json).escalate_url
        if escalate_url is not None:
            check_egress("retryPolicy.escalateUrl", escalate_url, context.egress, target="escalateTarget")
    if (given.callback_timeout_seconds or 0) > context.max_timeout_seconds:
        raise InvalidInput(
            "timeoutSeconds",
            f"must be at most {context.max_timeout_seconds} in this deployment, whose pollers end and wait no longer:"
            " a receiver that needs more responds 202 with an ack",
        )


def check_payload_size(found: RawObject) -> None:
    payload = found.members.get("payload")
    if isinstance(payload, str) and utf8_length(payload) > MAX_PAYLOAD_BYTES:
        raise PayloadTooLarge("payload", f"must have at most {MAX_PAYLOAD_BYTES} bytes of JSON")
