"""A client that openapi-python-client made, run against `duetime serve`."""

from __future__ import annotations

import os

from duetime_generated import AuthenticatedClient
from duetime_generated.api.namespaces import put_namespace
from duetime_generated.api.service_calls import (
    cancel_service_call,
    list_events,
    patch_service_call,
    submit_service_call,
)
from duetime_generated.api.timers import create_timer, delete_timer, get_timer, list_timers, patch_timer
from duetime_generated.models import (
    CallRequest,
    Method,
    NamespaceBody,
    Problem,
    ServiceCallBody,
    ServiceCallPatch,
    TimerBody,
    TimerPatch,
    TimerRetryPolicy,
)

CLIENT = AuthenticatedClient(base_url=os.environ["DUETIME_URL"], token=os.environ["DUETIME_API_KEY"])


def timers() -> None:
    assert put_namespace.sync_detailed("generated", client=CLIENT, body=NamespaceBody()).status_code == 201
    timer = TimerBody(callback_url="https://example.com/", id="first", delay="1h")
    created = create_timer.sync("generated", client=CLIENT, body=timer)
    assert created.revision == 1
    patch = TimerPatch(tags=["generated"], retry_policy=TimerRetryPolicy(max_attempts=3))
    changed = patch_timer.sync("generated", "first", client=CLIENT, body=patch, if_match='"1"')
    assert changed.tags == ["generated"]
    assert changed.retry_policy.max_attempts == 3
    assert [item.id for item in list_timers.sync("generated", client=CLIENT, tag="generated").items] == ["first"]
    assert delete_timer.sync_detailed("generated", "first", client=CLIENT).status_code == 200
    missing = get_timer.sync("generated", "first", client=CLIENT)
    assert isinstance(missing, Problem)
    assert missing.code == "timer_not_found"


def service_calls() -> None:
    request = CallRequest(method=Method.POST, url="https://example.com/", body={"a": 1})
    submission = ServiceCallBody(name="ping", request=request, delay=3600)
    call = submit_service_call.sync("acme", client=CLIENT, body=submission)
    assert call.status == "Scheduled"
    assert patch_service_call.sync("acme", call.id, client=CLIENT, body=ServiceCallPatch(starred=True)).starred
    assert list_events.sync("acme", call.id, client=CLIENT).items[0].type_ == "ServiceCallSubmitted"
    assert cancel_service_call.sync("acme", call.id, client=CLIENT).status == "Cancelled"


timers()
service_calls()
