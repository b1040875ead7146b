"""What a receiver's response means. The table is in docs/receivers.md."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from functools import lru_cache
from typing import Any

from duetime.delivery.port import CallbackResult, TransportError
from duetime.domain.answers import LONGEST_WAIT
from duetime.domain.retry import MAX_RETRY_AFTER_SECONDS, MIN_RETRY_AFTER_SECONDS
from duetime.domain.schedules import ScheduleRequest
from duetime.domain.timers import FailureReason
from duetime.domain.times import parse_duration, parse_instant

RETRIED_4XX = frozenset({408, 425, 429})
_ACCEPTED = 202
_MAX_SECONDS_DIGITS = 18
_MAX_REASON = 200
_MAX_ALIKE_BYTES = 256
_HTTP_DATE = re.compile(
    r"[A-Z][a-z]{2}, \d{2} [A-Z][a-z]{2} \d{4} \d{2}:\d{2}:\d{2} GMT"
    r"|[A-Z][a-z]{5,8}, \d{2}-[A-Z][a-z]{2}-\d{2} \d{2}:\d{2}:\d{2} GMT"
    r"|[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d{2}:\d{2}:\d{2} \d{4}",
    re.ASCII,
)
"""The three forms of RFC 9110, section 5.6.7, all in UTC. The standard reader of dates takes much more for one."""


class Disposition(StrEnum):
    FIRED = "fired"
    RESCHEDULE = "reschedule"
    """Fire again at ``next_execute_at``, as a new firing."""
    RETRY = "retry"
    """Try again as the retry policy says, not before ``retry_after_seconds``."""
    FAILED = "failed"
    """Trying again is pointless."""
    WAIT = "wait"
    """The receiver has taken the work, and will say within ``answer_within_seconds`` what came of it."""


@dataclass(frozen=True, slots=True)
class Classification:
    """``reason`` is set with RETRY and FAILED. ``message`` tells why then; with FIRED it is a warning or empty.

    ``request`` is what is asked of the schedule, and told in ``message``.
    """

    disposition: Disposition
    next_execute_at: datetime | None = None
    retry_after_seconds: float | None = None
    reason: FailureReason | None = None
    message: str = ""
    request: ScheduleRequest | None = None
    answer_within_seconds: float = 0.0


_FIRED = Classification(Disposition.FIRED)


def classify(result: CallbackResult, *, now: datetime) -> Classification:
    """Return what to do after an attempt. Never raises, whatever the receiver sent."""
    status = result.status
    if status is None:
        return _read_error(result)
    if 200 <= status < 300:
        return _read_success(result, now) if result.body and not result.body_truncated else _FIRED
    message = f"the receiver answered with status {status}"
    if 400 <= status < 500 and status not in RETRIED_4XX:
        return Classification(Disposition.FAILED, reason=FailureReason.HTTP_STATUS, message=message)
    return _retry(result, FailureReason.HTTP_STATUS, message, now)


def classify_occurrence(result: CallbackResult, *, now: datetime) -> Classification:
    """Classify for a schedule, which says itself when it fires next, and may be told to pause or to end."""
    found = classify(result, now=now)
    if result.status is None or not 200 <= result.status < 300 or not result.body or result.body_truncated:
        return found
    document = _json_object(result.body)
    if found.disposition is Disposition.RESCHEDULE:
        ignored = "nextExecuteAt in the response is not followed: the schedule says when it fires next"
        is_ok = _is_ok(document)
        found = Classification(Disposition.FIRED, message=ignored) if is_ok else _not_ok(result, ignored, now)
    try:
        request = _read_request(document)
    except ValueError as error:
        return replace(found, message=_joined(found.message, str(error)))
    if request is None:
        return found
    return replace(found, message=_joined(request.message, found.message), request=request)


def _read_request(document: Mapping[str, Any]) -> ScheduleRequest | None:
    pause, end = document.get("pause"), document.get("end")
    if end is not None and not isinstance(end, bool):
        raise ValueError("end in the response must be true")
    if pause is not None and not isinstance(pause, (bool, str)):
        raise ValueError("pause in the response must be true or a reason")
    if end:
        return ScheduleRequest(is_end=True)
    if not pause:
        return None
    words = "" if pause is True else "".join(each for each in pause if each.isprintable())
    return ScheduleRequest(is_end=False, reason=words[:_MAX_REASON])


def _joined(*messages: str) -> str:
    return "; ".join(each for each in messages if each)


def _read_error(result: CallbackResult) -> Classification:
    """Read an error. A URL that cannot be called stays so; everything else may be better next time."""
    match result.error:
        case TransportError.REFUSED_URL:
            return Classification(Disposition.FAILED, reason=FailureReason.REFUSED_URL, message=result.message)
        case TransportError.REFUSED_ADDRESS:
            return Classification(Disposition.RETRY, reason=FailureReason.REFUSED_ADDRESS, message=result.message)
        case TransportError.TIMEOUT:
            return Classification(Disposition.RETRY, reason=FailureReason.TIMEOUT, message=result.message)
        case _:
            return Classification(Disposition.RETRY, reason=FailureReason.NETWORK, message=result.message)


def _read_success(result: CallbackResult, now: datetime) -> Classification:
    """Read a 2xx: fired, unless a JSON object says otherwise. Receivers that know nothing of Duetime may say
    anything.

    A ``nextExecuteAt`` that is no time cannot be followed. If the receiver was satisfied, calling it again would
    only repeat its work: the timer is fired and the response carries a warning. If not, the policy decides.
    """
    document = _json_object(result.body)
    is_ok = _is_ok(document)
    if result.status == _ACCEPTED and is_ok and document.get("ack") is not None:
        return _read_wait(result, document["ack"], now)
    wanted = document.get("nextExecuteAt")
    warning = ""
    if wanted is not None:
        try:
            return Classification(Disposition.RESCHEDULE, next_execute_at=_read_time(wanted))
        except ValueError as error:
            warning = f"nextExecuteAt in the response {error}"
    if is_ok:
        return Classification(Disposition.FIRED, message=warning) if warning else _FIRED
    return _not_ok(result, warning, now)


def _read_wait(result: CallbackResult, ack: object, now: datetime) -> Classification:
    """Read for how long to wait for an answer. What cannot be read is tried again: the work is not done."""
    try:
        if not isinstance(ack, dict) or not isinstance(within := ack.get("within"), str | int | float):
            raise ValueError('must be an object with a duration "within"')
        seconds = parse_duration(within)
        if seconds <= 0:
            raise ValueError("must have a duration above 0")
    except ValueError as error:
        return _not_ok(result, f"ack in the response {error}", now, said="the receiver answered 202")
    return Classification(Disposition.WAIT, answer_within_seconds=min(seconds, LONGEST_WAIT.total_seconds()))


def _not_ok(
    result: CallbackResult, warning: str, now: datetime, *, said: str = 'the receiver answered "ok": false'
) -> Classification:
    return _retry(result, FailureReason.NOT_OK, _joined(said, warning), now)


def _read_time(value: object) -> datetime:
    if not isinstance(value, str):
        raise ValueError("must be a string")  # also a number: its unit would be a guess
    return parse_instant(value)


def _json_object(body: bytes) -> Mapping[str, Any]:
    """Return the object in ``body``, or an empty one when it holds anything else."""
    return _read_alike(body) if len(body) <= _MAX_ALIKE_BYTES else _read_object(body)


@lru_cache(maxsize=256)
def _read_alike(body: bytes) -> Mapping[str, Any]:
    """Receivers say little, and mostly the same."""
    return _read_object(body)


def _read_object(body: bytes) -> Mapping[str, Any]:
    if b"{" not in body:  # in whatever encoding
        return {}
    try:
        # As floats, since a whole number of more than 4,300 digits must not make the rest unreadable.
        document = json.loads(body, parse_int=float)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _is_ok(document: Mapping[str, Any]) -> bool:
    return document.get("ok") is not False


def _retry(result: CallbackResult, reason: FailureReason, message: str, now: datetime) -> Classification:
    return Classification(
        Disposition.RETRY,
        retry_after_seconds=retry_after_seconds(result.retry_after, now=now),
        reason=reason,
        message=message,
    )


def retry_after_seconds(text: str | None, *, now: datetime) -> float | None:
    """Return seconds that a ``Retry-After`` (whole seconds or an HTTP date) asks for, 0 to 6 h; None for anything
    else: the header then counts as absent."""
    if text is None:
        return None
    text = text.strip()
    if text.isascii() and text.isdigit():
        seconds = float(text[:_MAX_SECONDS_DIGITS])
    elif _HTTP_DATE.fullmatch(text):
        try:
            seconds = (parsedate_to_datetime(text).replace(tzinfo=UTC) - now).total_seconds()
        except (ValueError, TypeError, IndexError, OverflowError):  # the 99th of December
            return None
    else:
        return None
    return min(max(seconds, MIN_RETRY_AFTER_SECONDS), MAX_RETRY_AFTER_SECONDS)
