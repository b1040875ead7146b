"""What a service call, its log and its events must be to be sent or shown, as ``timer_codec.checked`` for timers.

The body of a request is looked at where it is sent (``delivery.call_request``): no answer shows it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from duetime.domain.call_events import CallEvent
from duetime.domain.executions import Execution
from duetime.domain.json_text import are_headers, is_policy
from duetime.domain.service_calls import ServiceCall
from duetime.stores.decoding import DamagedRow, is_text, is_whole, repaired
from duetime.stores.json_texts import is_object


def checked_call(call: ServiceCall) -> ServiceCall:
    """Return ``call``; raise ``DamagedRow`` when it cannot be sent or shown as it is."""
    for name in _damaged(call):
        raise DamagedRow(f"{name} is damaged")
    return call


def call_without_damage(call: ServiceCall) -> ServiceCall:
    """Return ``call`` with nothing in the place of what ``checked_call`` refuses: it is shown, and never sent."""
    damaged = set(_damaged(call))
    request = replace(call.request, headers_json=None) if "headers_json" in damaged else call.request
    policy = None if "retry_policy_json" in damaged else call.retry_policy_json
    return repaired(replace(call, request=request, retry_policy_json=policy, attempts=max(0, call.attempts)))


def checked_event(event: CallEvent) -> CallEvent:
    """Return ``event``; raise ``DamagedRow``: its payload becomes a part of what is published."""
    if not is_object(event.payload_json):
        raise DamagedRow("payload_json is damaged")
    ids = f"{event.tenant_id}{event.aggregate_id}{event.event_id}{event.correlation_id}{event.causation_id}"
    if not is_text(ids + event.payload_json):
        raise DamagedRow("a text is damaged")
    return event


def checked_execution(execution: Execution) -> Execution:
    """Return ``execution``; raise ``DamagedRow`` when it cannot be shown as it is."""
    if not is_whole(execution):
        raise DamagedRow("a text is damaged")
    return execution


def _damaged(call: ServiceCall) -> Iterator[str]:
    headers, policy = call.request.headers_json, call.retry_policy_json
    if headers is not None and not are_headers(headers):
        yield "headers_json"
    if policy is not None and not is_policy(policy):
        yield "retry_policy_json"
    if call.attempts < 0:
        yield "attempts"
    if call.timeout_seconds < 1:
        yield "timeout_seconds"
    if not is_whole(call):
        yield "a text"
