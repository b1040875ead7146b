"""What a reader sees of what others gave: no credentials, by the same rules as the execution log.

Whoever may write sees what was written. Executions and events are stored without secrets: everybody sees the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace

from duetime.api.context import Services
from duetime.api.encoding import attempt_json, encode, timer_json
from duetime.api.http.request import Request
from duetime.api.service_calls.encoding import call_json, call_summary_json
from duetime.domain.attempts import AttemptRecord
from duetime.domain.principals import Role
from duetime.domain.redaction import RedactionRules, redact_body, redact_members, shown_url, shown_value
from duetime.domain.retry import RetryPolicy
from duetime.domain.service_calls import RequestSpec, ServiceCall
from duetime.domain.timers import Timer


@dataclass(frozen=True, slots=True)
class Views:
    """How resources are shown to one principal, as JSON."""

    timer: Callable[[Timer, RetryPolicy], str]
    attempt: Callable[[AttemptRecord], str]
    call: Callable[[ServiceCall], str]
    call_summary: Callable[[ServiceCall], str]


_WHOLE = Views(timer_json, attempt_json, call_json, call_summary_json)


def views_for(services: Services, request: Request) -> Views:
    if request.principal is None or request.principal.role is not Role.READER:
        return _WHOLE
    rules = services.context.redaction
    return Views(
        timer=lambda timer, policy: timer_json(_timer(timer, rules), policy),
        attempt=lambda attempt: attempt_json(_attempt(attempt, rules)),
        call=lambda call: call_json(_call(call, rules)),
        call_summary=lambda call: call_summary_json(_call(call, rules)),
    )


def _timer(timer: Timer, rules: RedactionRules) -> Timer:
    content = timer.content
    shown = replace(
        content,
        callback_url=shown_url(content.callback_url, rules),
        headers_json=_headers(content.headers_json, rules),
        payload_json=_body(content.payload_json, "application/json", rules),
    )
    return replace(timer, content=shown)


def _attempt(attempt: AttemptRecord, rules: RedactionRules) -> AttemptRecord:
    """Its headers were chosen, and are without secrets, since it was stored."""
    body = attempt.body and redact_body(attempt.body, attempt.headers.get("content-type", "").lower(), rules.fields)
    return replace(attempt, body=body)


def _call(call: ServiceCall, rules: RedactionRules) -> ServiceCall:
    request = call.request
    headers = {} if request.headers_json is None else json.loads(request.headers_json)
    content_type = next((value for name, value in headers.items() if name.lower() == "content-type"), "").lower()
    shown = RequestSpec(
        method=request.method,
        url=shown_url(request.url, rules),
        headers_json=_headers(request.headers_json, rules),
        body_json=_body(request.body_json, content_type, rules),
        body_bytes=request.body_bytes,
    )
    return replace(call, request=shown)


def _headers(headers_json: str | None, rules: RedactionRules) -> str | None:
    if headers_json is None:
        return None
    return encode({name: shown_value(name, value, rules) for name, value in json.loads(headers_json).items()})


def _body(body_json: str | None, content_type: str, rules: RedactionRules) -> str | None:
    """JSON; a text is sent as it is, so it is looked into as what it is declared as."""
    if body_json is None:
        return None
    if body_json.lstrip()[:1] == '"':
        return encode(redact_body(json.loads(body_json), content_type, rules.fields))
    return redact_members(body_json, rules.fields)
