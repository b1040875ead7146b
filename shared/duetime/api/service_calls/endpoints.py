"""Single service calls: submit, get, patch, fire, cancel, delete, rerun."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from duetime.api.context import Services
from duetime.api.http.idempotency import replayed
from duetime.api.http.parsing import read_body, read_nothing
from duetime.api.http.preconditions import IF_MATCH, IF_NONE_MATCH, etag, if_match, not_modified
from duetime.api.http.request import Reply, Request
from duetime.api.http.request_models import PLAIN_SHAPE
from duetime.api.http.responses import json_reply
from duetime.api.http.route import Keeps, Route
from duetime.api.service_calls.parsing import CORRELATION_ID, read_patch, read_rerun, read_submission
from duetime.api.service_calls.requests import CALL_SHAPE, RerunBody, ServiceCallBody, ServiceCallPatch
from duetime.api.service_calls.responses import ServiceCallResponse, call_response
from duetime.app.readers import shown_call
from duetime.calls.submission import Submitted
from duetime.domain.principals import Role
from duetime.domain.service_calls import ServiceCall
from duetime.stores.port.calls import CallRef

_SERVICE_CALLS = "/v1/tenants/<tenant>/service-calls"
_SERVICE_CALL = "/v1/tenants/<tenant>/service-calls/<service_call_id>"


@Route(
    "POST",
    _SERVICE_CALLS,
    Role.WRITER,
    summary="Submit a service call; 200 when the same was submitted under the same idempotency key before",
    body=ServiceCallBody,
    responses={202: ServiceCallResponse, 200: ServiceCallResponse},
    headers=(CORRELATION_ID,),
    keeps=Keeps.RESOURCE,
)
def submit_service_call(services: Services, request: Request, *, tenant: str) -> Reply:
    """Submit a service call: 202, or 200 when the same was submitted under this idempotency key.

    Other content under the same key is a 409.
    """
    context = services.context
    now = context.clock.now()
    found = read_body(request, CALL_SHAPE)
    submission = read_submission(request, found, egress=context.egress, new_id=context.new_id, now=now)
    return _submitted_reply(services.calls.submit(tenant, submission, now=now))


@Route(
    "GET",
    _SERVICE_CALL,
    Role.READER,
    summary="Read a service call",
    responses={200: ServiceCallResponse, 304: None},
    problems=(409,),
    conditions=(IF_NONE_MATCH,),
)
def get_service_call(services: Services, request: Request, *, tenant: str, service_call_id: str) -> Reply:
    """Return a service call; 304 when ``If-None-Match`` names its revision."""
    context = services.context
    call = services.calls.get(CallRef(tenant, service_call_id), now=context.clock.now())
    return not_modified(request, call.revision) or _call_reply(
        200, shown_call(call, request.principal, context.redaction)
    )


@Route(
    "PATCH",
    _SERVICE_CALL,
    Role.WRITER,
    summary="Change name, tags or star; while nothing of it is in flight also due time and request",
    body=ServiceCallPatch,
    body_type="application/merge-patch+json",
    responses={200: ServiceCallResponse},
    conditions=(IF_MATCH,),
)
def patch_service_call(services: Services, request: Request, *, tenant: str, service_call_id: str) -> Reply:
    """Apply a merge patch. One that changes nothing does not even change the revision."""
    context = services.context
    now = context.clock.now()
    found = read_body(request, CALL_SHAPE)
    change_of = read_patch(found, egress=context.egress, now=now)
    ref, wanted = CallRef(tenant, service_call_id), if_match(request)
    return _call_reply(200, services.calls.update(ref, change_of, new_id=context.new_id, now=now, wanted=wanted))


@Route(
    "POST",
    f"{_SERVICE_CALL}/fire",
    Role.WRITER,
    summary="Make a service call that waits for its due time or its next attempt due now",
    responses={200: ServiceCallResponse},
    conditions=(IF_MATCH,),
)
def fire_service_call(services: Services, request: Request, *, tenant: str, service_call_id: str) -> Reply:
    """Make a waiting service call due now. One that is due already stays as it is."""
    return _acted(services, request, services.calls.fire, CallRef(tenant, service_call_id))


@Route(
    "POST",
    f"{_SERVICE_CALL}/cancel",
    Role.WRITER,
    summary="Cancel a service call that waits for its due time or its next attempt: it is kept as Cancelled",
    responses={200: ServiceCallResponse},
    conditions=(IF_MATCH,),
)
def cancel_service_call(services: Services, request: Request, *, tenant: str, service_call_id: str) -> Reply:
    """End a waiting service call as Cancelled and keep it. One that is Cancelled already stays as it is."""
    return _acted(services, request, services.calls.cancel, CallRef(tenant, service_call_id))


def _acted(services: Services, request: Request, act: Callable[..., ServiceCall], ref: CallRef) -> Reply:
    context = services.context
    now = context.clock.now()
    read_nothing(request)
    return _call_reply(200, act(ref, new_id=context.new_id, now=now, wanted=if_match(request)))


@Route(
    "DELETE",
    _SERVICE_CALL,
    Role.WRITER,
    summary="Remove a finished service call with its executions",
    responses={204: None},
    problems=(409,),
    conditions=(IF_MATCH,),
)
def delete_service_call(services: Services, request: Request, *, tenant: str, service_call_id: str) -> Reply:
    """Remove a finished service call with its executions and events (204)."""
    context = services.context
    ref, wanted = CallRef(tenant, service_call_id), if_match(request)
    services.calls.delete(ref, new_id=context.new_id, now=context.clock.now(), wanted=wanted)
    return Reply(status=204)


@Route(
    "POST",
    f"{_SERVICE_CALL}/rerun",
    Role.WRITER,
    summary="Submit a finished service call anew",
    body=RerunBody,
    body_is_required=False,
    responses={202: ServiceCallResponse, 200: ServiceCallResponse},
    conditions=(IF_MATCH,),
    headers=(CORRELATION_ID,),
    keeps=Keeps.RESOURCE,
)
def rerun_service_call(services: Services, request: Request, *, tenant: str, service_call_id: str) -> Reply:
    """Submit a new service call with the request of a finished one."""
    context = services.context
    now = context.clock.now()
    found = read_body(request, PLAIN_SHAPE, is_optional=True)
    submission_of = read_rerun(request, found, now=now)
    ref, wanted = CallRef(tenant, service_call_id), if_match(request)
    return _submitted_reply(services.calls.rerun(ref, submission_of, egress=context.egress, now=now, wanted=wanted))


def _submitted_reply(submitted: Submitted) -> Reply:
    call = submitted.call
    reply = _call_reply(202 if submitted.is_new else 200, call)
    location = f"/v1/tenants/{call.tenant_id}/service-calls/{call.call_id}"
    reply = replace(reply, headers={**reply.headers, "location": location})
    return reply if submitted.is_new else replayed(reply)


def _call_reply(status: int, call: ServiceCall) -> Reply:
    return json_reply(status, call_response(call), {"etag": etag(call.revision)})
