"""From what a client asks for to a submission or a change of a service call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from datetime import datetime
from functools import partial
from typing import Any, Final

from duetime.api.http import validators
from duetime.api.http.errors import FieldError, InvalidFields
from duetime.api.http.idempotency import IDEMPOTENCY_KEY, given_key
from duetime.api.http.parsing import after, check_egress, read_destination, validate
from duetime.api.http.raw_json import RawObject
from duetime.api.http.request import Request, utf8_length
from duetime.api.service_calls.requests import (
    CallRequest,
    CallRequestPatch,
    RerunBody,
    ServiceCallBody,
    ServiceCallPatch,
)
from duetime.delivery.egress import EgressPolicy
from duetime.domain.errors import InvalidInput, PayloadTooLarge
from duetime.domain.service_calls import (
    MAX_BODY_BYTES,
    CallChange,
    CallContent,
    Method,
    RequestSpec,
    ServiceCall,
    Submission,
    call_digest,
    check_waits,
    request_spec,
    rerun,
)
from duetime.domain.targets import check_target_body, is_arn
from duetime.domain.timers import UNSET
from duetime.domain.times import format_instant

CORRELATION_ID = "X-Correlation-Id"
_NULL: Final[dict[str, Any]] = {
    field.name: None if field.default is MISSING else field.default for field in fields(CallContent)
}
"""What null stands for, by the fields that the content of a call has."""


@dataclass(frozen=True, slots=True)
class _Due:
    """``at`` None: now. ``asked`` identifies what was asked for, whenever it is asked."""

    at: datetime | None
    asked: str | None


def read_submission(
    request: Request,
    found: RawObject,
    *,
    egress: EgressPolicy,
    new_id: Callable[[], str],
    now: datetime,
    is_one_of_many: bool = False,
) -> Submission:
    """Return the submission that ``found`` and the headers of ``request`` describe.

    The header ``Idempotency-Key`` is the key of a single one. Of many it is that of the request, and those without a
    key of their own get one from ``new_id``, which makes the same ids when the request is repeated.

    Raises ``InvalidInput`` (all faults of the body at once) and ``PayloadTooLarge``.
    """
    _check_body_size(found)
    body = validate(ServiceCallBody, found)
    call_request = read_request("request", body.request, egress)
    due = _due(body.due_at, body.delay, now)
    asked = _asked(body) | {"request": call_request}
    correlation_id = _correlation_id(request, body.correlation_id) or new_id()
    return Submission(
        **asked | {"correlation_id": correlation_id},
        digest=call_digest(**asked, due=due.asked),
        due_at=due.at,
        idempotency_key=(
            body.idempotency_key or (given_key(request) and new_id())
            if is_one_of_many
            else _idempotency_key(request, body.idempotency_key)
        ),
    )


def read_rerun(request: Request, found: RawObject, *, now: datetime) -> Callable[[ServiceCall], Submission]:
    """Return what makes a submission of the call that is to be repeated."""
    body = validate(RerunBody, found)
    due = _due(body.due_at, body.delay, now)
    return partial(
        rerun,
        due_at=due.at,
        due=due.asked,
        idempotency_key=_idempotency_key(request, body.idempotency_key),
        asked_correlation_id=body.correlation_id,
        correlation_id=_correlation_id(request, body.correlation_id),
    )


def read_patch(found: RawObject, *, egress: EgressPolicy, now: datetime) -> Callable[[ServiceCall], CallChange]:
    """Return what makes a change of the call as it is stored; what would change nothing is left out of it.

    Raises as ``read_submission`` does; the function raises ``CallFinished`` and ``CallRunning``.
    """
    _check_body_size(found)
    patch = validate(ServiceCallPatch, found)
    given = patch.model_fields_set
    if given >= {"due_at", "delay"}:
        raise InvalidFields([FieldError("dueAt", "and delay cannot both be given")])
    if "request" in given:
        url = read_destination("request.url", patch.request.url, patch.request.target)
        if url is not None:
            check_egress("request.url", url, egress)
    due_at = after(now, patch.delay) if "delay" in given else patch.due_at
    is_rescheduled = bool(given & {"due_at", "delay"})

    def change(call: ServiceCall) -> CallChange:
        if is_rescheduled or "request" in given:
            check_waits(call, "its due time and request cannot be changed")
        wanted = {name: value for name, value in _asked(patch).items() if name in given}
        if "request" in given:
            wanted["request"] = _patched(call.request, patch.request)
        new = {name: value for name, value in wanted.items() if value != getattr(call, name)}
        return CallChange(**new, due_at=due_at if is_rescheduled else UNSET)

    return change


def _asked(body: ServiceCallBody | ServiceCallPatch) -> dict[str, Any]:
    """Return the fields of a call's content that ``body`` has."""
    values = {name: getattr(body, name) for name in _NULL if name in type(body).model_fields}
    return {name: _NULL[name] if value is None else value for name, value in values.items()}


def read_request(field: str, given: CallRequest, egress: EgressPolicy) -> RequestSpec:
    """Return the request that ``given``, the member ``field``, describes. Raises ``InvalidInput`` and
    ``PayloadTooLarge``."""
    url = read_destination(f"{field}.url", given.url, given.target)
    if url is None:
        raise InvalidInput(f"{field}.url", "is required, or target")
    method = given.method or (None if given.target is None else Method.POST)
    if method is None:
        raise InvalidInput(f"{field}.method", "is required with url")
    check_egress(f"{field}.url", url, egress)
    request = request_spec(method=method, url=url, headers_json=given.headers_json, body_json=given.body_json)
    _check_message(field, request)
    return request


def _patched(stored: RequestSpec, patch: CallRequestPatch) -> RequestSpec:
    given = {name: getattr(patch, name) for name in patch.model_fields_set}
    target = given.pop("target", None)
    if target is not None:
        given = {"method": Method.POST, "headers_json": None} | given | {"url": target.arn}
    kept = {name: getattr(stored, name) for name in ("method", "url", "headers_json", "body_json")}
    request = request_spec(**kept | given)
    _check_message("request", request)
    return request


def _check_message(field: str, request: RequestSpec) -> None:
    """Refuse what its target does not take. Some targets take no other body than an object."""
    if not is_arn(request.url):
        return
    if request.method is not Method.POST:
        raise InvalidInput(f"{field}.method", "must be POST with target, or omitted")
    if request.headers_json is not None:
        raise InvalidInput(f"{field}.headers", "cannot be given with target")
    if request.body_json is None or not request.body_json.startswith("{"):
        raise InvalidInput(f"{field}.body", "must be an object with target")
    check_target_body(f"{field}.body", request.body_json)


def _due(due_at: datetime | None, delay_seconds: float | None, now: datetime) -> _Due:
    if due_at is not None and delay_seconds is not None:
        raise InvalidFields([FieldError("dueAt", "and delay cannot both be given")])
    if delay_seconds is not None:
        return _Due(after(now, delay_seconds), f"after {delay_seconds!r}")
    return _Due(due_at, None if due_at is None else format_instant(due_at))


def _idempotency_key(request: Request, given: str | None) -> str | None:
    """Return the key in the body, or in the header."""
    header = given_key(request)
    if header is None:
        return given
    if given not in (None, header):
        raise InvalidInput("idempotencyKey", f"is not the one in the header {IDEMPOTENCY_KEY}")
    return header


def _correlation_id(request: Request, given: str | None) -> str | None:
    """Return the one of the body or else of the header, which must be right either way."""
    header = request.header(CORRELATION_ID.lower())
    if not header:
        return given
    try:
        found = validators.header_text(header)
    except ValueError as error:
        raise InvalidInput(CORRELATION_ID, str(error)) from None
    return given or found


def _check_body_size(found: RawObject) -> None:
    request = found.members.get("request")
    body = request.members.get("body") if isinstance(request, RawObject) else None
    if isinstance(body, str) and utf8_length(body) > MAX_BODY_BYTES:
        raise PayloadTooLarge("request.body", f"must have at most {MAX_BODY_BYTES} bytes of JSON")
