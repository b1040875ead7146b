"""Single service calls: submit, read, change, fire, cancel, remove, rerun."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from duetime.api.context import Services
from duetime.api.http.idempotency import replayed
from duetime.api.http.parsing import read_body, validate
from duetime.api.http.preconditions import IF_MATCH, IF_NONE_MATCH, EntityTags, etag, if_match, if_none_match
from duetime.api.http.request import Reply, Request
from duetime.api.http.request_models import PLAIN_SHAPE, NothingBody
from duetime.api.http.responses import json_reply
from duetime.api.http.route import Keeps, Route
from duetime.api.service_calls.parsing import read_patch, read_rerun, read_submission
from duetime.api.service_calls.requests import CALL_SHAPE, RerunBody, ServiceCallBody, ServiceCallPatch
from duetime.api.service_calls.responses import ServiceCallResponse, call_response
from duetime.app.readers import shown_call
from duetime.app.service_calls import check_waits
from duetime.app.submission import Submitted
from duetime.delivery.egress import RefusedUrl
from duetime.domain.call_steps import DeletionReason, Transition, amended, cancelled, deleted
from duetime.domain.errors import (
    CallNotFinished,
    CallNotFound,
    CallUnreadable,
    InvalidInput,
    RevisionMismatch,
    StoreUnavailable,
)
from duetime.domain.principals import Role
from duetime.domain.service_calls import CallChange, CallStatus, ServiceCall, timer_of
from duetime.domain.times import round_up
from duetime.stores.port.calls import ApplyStatus, CallRef, DeleteStatus

MAX_BODY_BYTES = 1024 * 1024
_TRIES = 10


def submit_service_call(services: Services, request: Request, *, tenant: str) -> Reply:
    """POST: 202, or 200 when the same was submitted under the same key; ``CallConflict`` when something else was."""
    context = services.context
    now = context.clock.now()
    found = read_body(request, CALL_SHAPE, limit_bytes=MAX_BODY_BYTES)
    submission = read_submission(request, found, egress=context.egress, new_id=context.new_id, now=now)
    return _submitted_reply(services.calls.submitter.submit(tenant, submission, now=now))


def get_service_call(services: Services, request: Request, *, tenant: str, service_call_id: str) -> Reply:
    """GET: 304 when ``If-None-Match`` names the revision."""
    call = services.calls.found(tenant, service_call_id, now=services.context.clock.now())
    known = if_none_match(request)
    if known is not None and known.match_weakly(call.revision):
        return Reply(status=304, headers={"etag": etag(call.revision)})
    return _call_reply(200, shown_call(call, request.principal, services.context.redaction))


def patch_service_call(services: Services, request: Request, *, tenant: str, service_call_id: str) -> Reply:
    """PATCH: a merge patch. One that changes nothing leaves the revision as it is."""
    now = services.context.clock.now()
    found = read_body(request, CALL_SHAPE, limit_bytes=MAX_BODY_BYTES)
    change_of = read_patch(found, egress=services.context.egress, now=now)
    return _call_reply(200, _changed(services, request, CallRef(tenant, service_call_id), change_of, now))


def fire_service_call(services: Services, request: Request, *, tenant: str, service_call_id: str) -> Reply:
    """POST: a call that waits, be it for its due time or its next attempt, is due now. One that is due already is
    left as it is."""
    now = services.context.clock.now()
    _read_nothing(request)

    def change_of(call: ServiceCall) -> CallChange:
        check_waits(call, "it cannot be fired")
        assert call.wake_at is not None
        return CallChange(due_at=round_up(now)) if call.wake_at > now else CallChange()

    return _call_reply(200, _changed(services, request, CallRef(tenant, service_call_id), change_of, now))


def cancel_service_call(services: Services, request: Request, *, tenant: str, service_call_id: str) -> Reply:
    """POST: a call that waits ends as Cancelled, and is kept. One that is Cancelled already is left as it is."""
    context, calls = services.context, services.calls
    now = context.clock.now()
    _read_nothing(request)

    def step_of(call: ServiceCall) -> Transition | None:
        if call.status is CallStatus.CANCELLED:
            return None
        check_waits(call, "it cannot be cancelled")
        return cancelled(call, new_id=context.new_id, now=now, rules=calls.rules)

    return _call_reply(200, _stepped(services, request, CallRef(tenant, service_call_id), step_of, now))


def delete_service_call(services: Services, request: Request, *, tenant: str, service_call_id: str) -> Reply:
    """DELETE: a finished call goes with all that it has."""
    calls = services.calls
    wanted = if_match(request)
    now = services.context.clock.now()
    for _ in range(_TRIES):
        revision = event = None
        try:
            call = calls.found(tenant, service_call_id, now=now)
        except CallUnreadable:  # it can only be removed
            if wanted is not None:
                raise
        else:
            _check_revision(call, wanted)
            if not call.status.is_finished:
                raise CallNotFinished(
                    f"service call {service_call_id!r} is {call.status}: cancel it first to remove it"
                )
            revision = call.revision
            event = deleted(call, DeletionReason.REQUEST, new_id=services.context.new_id, now=now)
        status = calls.store.delete(tenant, service_call_id, now=now, if_revision=revision, event=event)
        if status is DeleteStatus.DELETED:
            return Reply(status=204)
        if status is DeleteStatus.NOT_FOUND:
            raise CallNotFound(tenant, service_call_id)
    raise StoreUnavailable("the service call is being changed all the time")


def rerun_service_call(services: Services, request: Request, *, tenant: str, service_call_id: str) -> Reply:
    """POST: a new call that asks for the same as a finished one."""
    context, calls = services.context, services.calls
    now = context.clock.now()
    found = read_body(request, PLAIN_SHAPE, limit_bytes=MAX_BODY_BYTES, is_optional=True)
    submission_of = read_rerun(request, found, now=now)
    call = calls.found(tenant, service_call_id, now=now)
    _check_revision(call, if_match(request))
    if not call.status.is_finished:
        raise CallNotFinished(
            f"service call {service_call_id!r} is {call.status}: it can be rerun when it has finished"
        )
    try:
        context.egress.check_url(call.request.url)
    except RefusedUrl as error:  # the rules may have changed since it was submitted
        raise InvalidInput("", f"the URL of the request {error}") from None
    return _submitted_reply(calls.submitter.submit(tenant, submission_of(call), now=now))


def _changed(
    services: Services,
    request: Request,
    ref: CallRef,
    change_of: Callable[[ServiceCall], CallChange],
    now: datetime,
) -> ServiceCall:
    """The call with a change that is a function of what is stored. One that changes nothing is not made."""
    new_id, rules = services.context.new_id, services.calls.rules

    def step_of(call: ServiceCall) -> Transition | None:
        change = change_of(call)
        return amended(call, change, new_id=new_id, now=now, rules=rules) if change.given() else None

    return _stepped(services, request, ref, step_of, now)


def _stepped(
    services: Services,
    request: Request,
    ref: CallRef,
    step_of: Callable[[ServiceCall], Transition | None],
    now: datetime,
) -> ServiceCall:
    """The call after a step under ``If-Match``; as it is when there is none to take."""
    context, calls = services.context, services.calls
    wanted = if_match(request)
    for _ in range(_TRIES):
        call = calls.found(ref.tenant_id, ref.call_id, now=now)
        _check_revision(call, wanted)
        transition = step_of(call)
        if transition is None:
            return call
        (status,) = calls.store.apply([transition], now=now)
        if status is ApplyStatus.APPLIED:
            if not transition.after.status.is_finished:
                context.on_stored([timer_of(transition.after)])
            return transition.after
        # Somebody else changed it since it was read: what was asked for is done to what that left.
    raise StoreUnavailable("the service call is being changed all the time")


def _read_nothing(request: Request) -> None:
    validate(NothingBody, read_body(request, PLAIN_SHAPE, limit_bytes=MAX_BODY_BYTES, is_optional=True))


def _check_revision(call: ServiceCall, wanted: EntityTags | None) -> None:
    if wanted is not None and not wanted.match_strongly(call.revision):
        raise RevisionMismatch("the service call has another revision than If-Match names")


def _submitted_reply(submitted: Submitted) -> Reply:
    reply = _call_reply(202 if submitted.is_new else 200, submitted.call)
    reply = replace(
        reply,
        headers={
            **reply.headers,
            "location": f"/v1/tenants/{submitted.call.tenant_id}/service-calls/{submitted.call.call_id}",
        },
    )
    return reply if submitted.is_new else replayed(reply)


def _call_reply(status: int, call: ServiceCall) -> Reply:
    return json_reply(status, call_response(call), {"etag": etag(call.revision)})


_SERVICE_CALLS = "/v1/tenants/<tenant>/service-calls"
_SERVICE_CALL = "/v1/tenants/<tenant>/service-calls/<service_call_id>"

ROUTES = (
    Route(
        "POST",
        _SERVICE_CALLS,
        submit_service_call,
        Role.WRITER,
        summary="Submit a service call; 200 when the same was submitted under the same idempotency key before",
        tag="service calls",
        body=ServiceCallBody,
        responses={202: ServiceCallResponse, 200: ServiceCallResponse},
        problems=(400, 409, 413, 415),
        headers=("X-Correlation-Id",),
        keeps=Keeps.RESOURCE,
    ),
    Route(
        "GET",
        _SERVICE_CALL,
        get_service_call,
        Role.READER,
        summary="Read a service call",
        tag="service calls",
        responses={200: ServiceCallResponse, 304: None},
        problems=(400, 404, 409),
        conditions=(IF_NONE_MATCH,),
    ),
    Route(
        "PATCH",
        _SERVICE_CALL,
        patch_service_call,
        Role.WRITER,
        summary="Change name, tags or star; while nothing of it is under way also due time and request",
        tag="service calls",
        body=ServiceCallPatch,
        body_type="application/merge-patch+json",
        responses={200: ServiceCallResponse},
        problems=(400, 404, 409, 412, 413, 415),
        conditions=(IF_MATCH,),
    ),
    Route(
        "DELETE",
        _SERVICE_CALL,
        delete_service_call,
        Role.WRITER,
        summary="Remove a finished service call with its executions",
        tag="service calls",
        responses={204: None},
        problems=(400, 404, 409, 412),
        conditions=(IF_MATCH,),
    ),
    Route(
        "POST",
        f"{_SERVICE_CALL}/cancel",
        cancel_service_call,
        Role.WRITER,
        summary="Cancel a service call that waits for its due time or its next attempt: it is kept as Cancelled",
        tag="service calls",
        responses={200: ServiceCallResponse},
        problems=(400, 404, 409, 412, 413, 415),
        conditions=(IF_MATCH,),
    ),
    Route(
        "POST",
        f"{_SERVICE_CALL}/fire",
        fire_service_call,
        Role.WRITER,
        summary="Make a service call that waits for its due time or its next attempt due now",
        tag="service calls",
        responses={200: ServiceCallResponse},
        problems=(400, 404, 409, 412, 413, 415),
        conditions=(IF_MATCH,),
    ),
    Route(
        "POST",
        f"{_SERVICE_CALL}/rerun",
        rerun_service_call,
        Role.WRITER,
        summary="Submit a finished service call anew",
        tag="service calls",
        body=RerunBody,
        body_is_required=False,
        responses={202: ServiceCallResponse, 200: ServiceCallResponse},
        problems=(400, 404, 409, 412, 413, 415),
        conditions=(IF_MATCH,),
        headers=("X-Correlation-Id",),
        keeps=Keeps.RESOURCE,
    ),
)
