"""What a reader sees of what others gave: no credentials, by the same rules as the execution log.

Whoever may write sees what was written. Executions and events are stored without secrets: everybody sees the same.
"""

from __future__ import annotations

import json
from dataclasses import replace

from duetime.domain.attempts import AttemptRecord
from duetime.domain.call_templates import readable_template, template_json
from duetime.domain.principals import Principal, Role
from duetime.domain.redaction import RedactionRules, redact_body, redact_members, shown_url, shown_value
from duetime.domain.retry import DEFAULT_RETRY_POLICY, policy_in_force
from duetime.domain.service_calls import RequestSpec, ServiceCall
from duetime.domain.targets import is_arn
from duetime.domain.timers import Timer

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def shown_timer(timer: Timer, principal: Principal | None, rules: RedactionRules) -> Timer:
    if not _is_reader(principal):
        return timer
    content, template = timer.content, readable_template(timer)
    if template is not None:
        text = template_json(replace(template, request=_request(template.request, rules)))
        return replace(timer, content=replace(content, payload_json=text))
    shown = replace(
        content,
        callback_url=shown_url(content.callback_url, rules),
        headers_json=_headers(content.headers_json, rules),
        payload_json=_body(content.payload_json, "application/json", rules),
        retry_policy_json=_policy(content.retry_policy_json, rules),
    )
    return replace(timer, content=shown)


def shown_attempt(attempt: AttemptRecord, principal: Principal | None, rules: RedactionRules) -> AttemptRecord:
    """Redact the body for a reader. The headers are without secrets: they were chosen when the attempt was
    stored."""
    if not _is_reader(principal):
        return attempt
    body = attempt.body and redact_body(attempt.body, attempt.headers.get("content-type", "").lower(), rules.fields)
    return replace(attempt, body=body)


def shown_call(call: ServiceCall, principal: Principal | None, rules: RedactionRules) -> ServiceCall:
    if not _is_reader(principal):
        return call
    return replace(call, request=_request(call.request, rules))


def _request(request: RequestSpec, rules: RedactionRules) -> RequestSpec:
    headers = {} if request.headers_json is None else json.loads(request.headers_json)
    content_type = next((value for name, value in headers.items() if name.lower() == "content-type"), "").lower()
    return RequestSpec(
        method=request.method,
        url=shown_url(request.url, rules),
        headers_json=_headers(request.headers_json, rules),
        body_json=_body(request.body_json, content_type, rules),
        body_bytes=request.body_bytes,
    )


def _is_reader(principal: Principal | None) -> bool:
    return principal is not None and principal.role is Role.READER


def _headers(headers_json: str | None, rules: RedactionRules) -> str | None:
    if headers_json is None:
        return None
    return _encode({name: shown_value(name, value, rules) for name, value in json.loads(headers_json).items()})


def _policy(policy_json: str | None, rules: RedactionRules) -> str | None:
    url = policy_in_force(policy_json, DEFAULT_RETRY_POLICY).escalate_url
    if policy_json is None or url is None or is_arn(url):
        return policy_json
    return _encode(json.loads(policy_json) | {"escalateUrl": shown_url(url, rules)})


def _body(body_json: str | None, content_type: str, rules: RedactionRules) -> str | None:
    """Redact a body, which is JSON. A text is sent as it is, so it is looked into as what it is declared as."""
    if body_json is None:
        return None
    if body_json.lstrip()[:1] == '"':
        return _encode(redact_body(json.loads(body_json), content_type, rules.fields))
    return redact_members(body_json, rules.fields)
