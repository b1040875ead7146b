"""From what a client asks for to a timer or a change."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from duetime.api.http.errors import FieldError, InvalidFields
from duetime.api.http.parsing import validate
from duetime.api.http.raw_json import RawJson, RawObject
from duetime.api.http.request import utf8_length
from duetime.api.schemas import TimerBody, TimerPatch
from duetime.delivery.egress import EgressPolicy, RefusedUrl
from duetime.domain.errors import InvalidInput, PayloadTooLarge
from duetime.domain.ids import check_timer_id
from duetime.domain.namespaces import Namespace
from duetime.domain.timers import (
    DEFAULT_CALLBACK_TIMEOUT_SECONDS,
    MAX_PAYLOAD_BYTES,
    UNSET,
    Timer,
    TimerChange,
    TimerContent,
    Unset,
    content_digest,
    new_timer,
)
from duetime.domain.times import check_range, round_up

_FIELD_OF = {
    "payload_json": "payload",
    "headers_json": "headers",
    "retry_policy_json": "retry_policy",
    "expire_after_ms": "expire_after",
}
"""The fields of ``TimerPatch`` that a change has under another name."""


def check_id(namespace: Namespace, timer_id: str) -> str:
    try:
        return check_timer_id(namespace.name, timer_id)
    except ValueError as error:
        raise InvalidInput("id", str(error)) from None


def read_timer(
    found: RawObject,
    namespace: Namespace,
    *,
    timer_id: str | None = None,
    egress: EgressPolicy,
    new_id: Callable[[], str],
    now: datetime,
) -> Timer:
    """The first revision of the timer that ``found`` describes.

    ``timer_id`` is the one in the path, which a body may only repeat; without it the body's counts, or else a
    new one is made. Raises ``InvalidInput`` (all faults at once) and ``PayloadTooLarge``.
    """
    _check_payload_size(found)
    body = validate(TimerBody, found)
    is_put = timer_id is not None
    if is_put and body.id not in (None, timer_id):
        raise InvalidInput("id", "is not the one in the path")
    if timer_id is None:
        timer_id = new_id() if body.id is None else body.id
    check_id(namespace, timer_id)
    check_egress("callbackUrl", body.callback_url, egress)
    if (body.execute_at is None) == (body.delay is None):
        raise InvalidFields([FieldError("executeAt", "is required, or delay, and not both")])
    execute_at = body.execute_at if body.execute_at is not None else after(now, body.delay or 0.0)
    content = TimerContent(
        execute_at=execute_at,
        callback_url=body.callback_url,
        payload_json=_text(body.payload),
        headers_json=_text(body.headers),
        retry_policy_json=_text(body.retry_policy),
        callback_timeout_seconds=body.callback_timeout_seconds or DEFAULT_CALLBACK_TIMEOUT_SECONDS,
        correlation_id=body.correlation_id,
        tags=tuple(body.tags or ()),
        expire_after_ms=body.expire_after,
    )
    # A create is the same as long as it asks for the same delay; a put asks for the time that the delay leads to.
    digest = content_digest(content, delay_seconds=None if is_put else body.delay)
    return new_timer(namespace, timer_id, content, digest=digest, firing_id=new_id(), now=now)


def read_change(found: RawObject, *, egress: EgressPolicy, now: datetime) -> TimerChange:
    """The change that a merge patch asks for; nothing is set when it is empty."""
    _check_payload_size(found)
    patch = validate(TimerPatch, found)
    given = patch.model_fields_set
    if given >= {"execute_at", "delay"}:
        raise InvalidFields([FieldError("executeAt", "and delay cannot both be given")])
    if "callback_url" in given:
        check_egress("callbackUrl", patch.callback_url, egress)
    execute_at: datetime | Unset = UNSET
    if "delay" in given:
        execute_at = after(now, patch.delay)
    elif "execute_at" in given:
        execute_at = patch.execute_at
    values: dict[str, Any] = {
        "execute_at": execute_at,
        "callback_url": patch.callback_url,
        "payload_json": _text(patch.payload),
        "headers_json": _text(patch.headers),
        "retry_policy_json": _text(patch.retry_policy),
        "callback_timeout_seconds": patch.callback_timeout_seconds or DEFAULT_CALLBACK_TIMEOUT_SECONDS,
        "correlation_id": patch.correlation_id,
        "tags": tuple(patch.tags or ()),
        "expire_after_ms": patch.expire_after,
    }
    given_values = {name: value for name, value in values.items() if _FIELD_OF.get(name, name) in given}
    return TimerChange(**given_values | {"execute_at": execute_at})


def after(now: datetime, delay_seconds: float) -> datetime:
    """The due time that a delay leads to, never earlier than the delay by rounding."""
    try:
        return check_range(round_up(now + timedelta(seconds=delay_seconds)))
    except (OverflowError, ValueError):
        raise InvalidInput("delay", "leads beyond the year 9999") from None


def check_egress(field: str, url: str, egress: EgressPolicy) -> None:
    """What is wrong whenever it fires is refused now. A name is judged by where it leads when it fires."""
    try:
        egress.check_url(url)
    except RefusedUrl as error:
        raise InvalidInput(field, str(error)) from None


def _check_payload_size(found: RawObject) -> None:
    payload = found.members.get("payload")
    if isinstance(payload, RawJson) and utf8_length(payload.text) > MAX_PAYLOAD_BYTES:
        raise PayloadTooLarge("payload", f"must have at most {MAX_PAYLOAD_BYTES} bytes of JSON")


def _text(value: RawJson | None) -> str | None:
    return None if value is None else value.text
