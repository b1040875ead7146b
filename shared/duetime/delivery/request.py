"""What is sent: a timer as one HTTP POST.

Runs once per attempt, so whatever many timers have in common (namespace, custom headers) is made once and
kept in bounded caches.
"""

from __future__ import annotations

import json
from datetime import datetime
from functools import lru_cache

from duetime import __version__
from duetime.delivery.firing_urls import FiringUrls
from duetime.delivery.headers import (
    OCCURRENCE_HEADER,
    SCHEDULE_ID_HEADER,
    SCHEDULED_AT_HEADER,
    header_line,
    is_reserved,
    stored_headers,
    visible,
)
from duetime.delivery.port import Callback
from duetime.delivery.signing import Signer
from duetime.domain.targets import is_arn
from duetime.domain.timers import Timer
from duetime.domain.times import format_instant, to_milliseconds

USER_AGENT = f"Duetime/{__version__}"
_FIXED_HEADERS = ("Content-Type: application/json", f"User-Agent: {USER_AGENT}")

_as_json = json.JSONEncoder(ensure_ascii=False).encode


def callback_for(
    timer: Timer, *, key: int, fired_at: datetime, signer: Signer | None = None, urls: FiringUrls | None = None
) -> Callback:
    """Return the POST of the next attempt of ``timer``, which begins at ``fired_at``. ``key`` comes back with the
    result.

    Without a ``signer`` it carries no signature, without ``urls`` no URL for an answer. To a target it carries none
    either, since nothing of a message's outcome waits, but the id of the firing: not every target takes headers.

    The payload is spliced in as its stored text, so what the client sent arrives digit for digit.
    """
    content = timer.content
    fired_at_member, timestamp, timestamp_line = _fired_at_parts(fired_at)
    payload = "null" if content.payload_json is None else content.payload_json
    is_target = is_arn(content.callback_url)
    if is_target:
        more = f',"firingId":"{timer.firing_id}"'
    else:
        more = "" if urls is None else f',"ackUrl":"{urls.ack_url(timer)}"'
    text = (
        f"{_namespace_member(timer.namespace)}{_identity(timer)},"
        f'"executeAt":"{format_instant(content.execute_at)}",{fired_at_member}'
        f'"attempt":{timer.attempts + 1},"payload":{payload}{more}}}'
    )
    # A lone surrogate has no UTF-8 form; as \\udxxx it is the JSON escape that it came from.
    body = text.encode(errors="backslashreplace")
    headers: tuple[str, ...] = (*_FIXED_HEADERS, f"webhook-id: {timer.firing_id}", timestamp_line)
    if signer is not None:
        headers += (f"webhook-signature: {signer.signature(timer.firing_id, timestamp, body)}",)
    if content.correlation_id is not None:
        headers += (f"x-correlation-id: {visible(content.correlation_id)}",)
    if timer.schedule is not None and not is_target:
        headers += _headers_of_occurrence(timer)
    if content.headers_json is not None and not is_target:
        headers += _custom_headers(content.headers_json)
    return Callback(
        key=key,
        url=content.callback_url,
        headers=headers,
        body=body,
        timeout_seconds=content.callback_timeout_seconds,
    )


def document_callback(timer: Timer, *, url: str, fired_at: datetime, signer: Signer | None) -> Callback:
    """Return a POST to ``url`` whose body is the payload of ``timer`` alone. ``timer`` has a payload."""
    content = timer.content
    assert content.payload_json is not None
    body = content.payload_json.encode(errors="backslashreplace")
    _, timestamp, timestamp_line = _fired_at_parts(fired_at)
    headers: tuple[str, ...] = (*_FIXED_HEADERS, f"webhook-id: {timer.firing_id}", timestamp_line)
    if signer is not None:
        headers += (f"webhook-signature: {signer.signature(timer.firing_id, timestamp, body)}",)
    if content.correlation_id is not None:
        headers += (f"x-correlation-id: {visible(content.correlation_id)}",)
    return Callback(key=0, url=url, headers=headers, body=body, timeout_seconds=content.callback_timeout_seconds)


def _identity(timer: Timer) -> str:
    """Return the members that name a timer, or the occurrence of a schedule."""
    schedule = timer.schedule
    if schedule is None or schedule.pending is None:
        return f'"timerId":{_as_json(timer.timer_id)}'
    scheduled_at = format_instant(schedule.pending.scheduled_at)
    schedule_id = _as_json(timer.schedule_id)
    return f'"scheduleId":{schedule_id},"scheduledAt":"{scheduled_at}","occurrence":{schedule.number}'


def _headers_of_occurrence(timer: Timer) -> tuple[str, ...]:
    """Return what ``_identity`` says of the occurrence of a schedule, for those who read no bodies."""
    schedule = timer.schedule
    if schedule is None or schedule.pending is None:
        return ()
    return (
        f"{SCHEDULE_ID_HEADER}: {visible(timer.schedule_id or '')}",
        f"{SCHEDULED_AT_HEADER}: {format_instant(schedule.pending.scheduled_at)}",
        f"{OCCURRENCE_HEADER}: {schedule.number}",
    )


@lru_cache(maxsize=1024)
def _namespace_member(namespace: str) -> str:
    return f'{{"namespace":{_as_json(namespace)},'


@lru_cache(maxsize=16)
def _fired_at_parts(fired_at: datetime) -> tuple[str, int, str]:
    """Return ``fired_at`` as the body has it, in seconds since 1970, and as a header; a batch shares one."""
    timestamp = to_milliseconds(fired_at) // 1000
    return f'"firedAt":"{format_instant(fired_at)}",', timestamp, f"webhook-timestamp: {timestamp}"


@lru_cache(maxsize=1024)
def _custom_headers(headers_json: str) -> tuple[str, ...]:
    return tuple(header_line(name, value) for name, value in stored_headers(headers_json, is_reserved))
