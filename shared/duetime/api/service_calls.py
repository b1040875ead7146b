"""Single service calls: submit, read, change, fire, cancel, remove, rerun."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from duetime.api.call_encoding import call_json
from duetime.api.call_input import read_patch, read_rerun, read_submission
from duetime.api.call_schemas import CALL_SHAPE
from duetime.api.call_services import call_path, calls_of, check_waits
from duetime.api.conditions import EntityTags, etag, if_match, if_none_match
from duetime.api.context import Services
from duetime.api.http import Reply, Request
from duetime.api.idempotency import replayed
from duetime.api.reading import read_body, validate
from duetime.api.schemas import PLAIN_SHAPE, NothingBody
from duetime.api.views import views_for
from duetime.calls.submit import Submitted
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
from duetime.domain.service_calls import CallChange, CallStatus, ServiceCall, timer_of
from duetime.domain.times import round_up
from duetime.stores.calls_port import ApplyStatus, CallRef, DeleteStatus

MAX_BODY_BYTES = 1024 * 1024
_TRIES = 10


def submit_call(services: Services, request: Request, *, tenant: str) -> Reply:
    """POST: 202, or 200 when the same was submitted under the same key; ``CallConflict`` when something else was."""
    context = services.context
    now = context.clock.now()
    found = read_body(request, CALL_SHAPE, limit_bytes=MAX_BODY_BYTES)
    submission = read_submission(request, found, egress=context.egress, new_id=context.new_id, now=now)
    return _submitted_reply(calls_of(services).submitter.submit(tenant, submission, now=now))


def get_call(services: Services, request: Request, *, tenant: str, call_id: str) -> Reply:
    """GET: 304 when ``If-None-Match`` names the revision."""
    call = calls_of(services).found(tenant, call_id, now=services.context.clock.now())
    known = if_none_match(request)
    if known is not None and known.match_weakly(call.revision):
        return Reply(status=304, headers={"etag": etag(call.revision)})
    return Reply(status=200, body=views_for(services, request).call(call), headers={"etag": etag(call.revision)})


def patch_call(services: Services, request: Request, *, tenant: str, call_id: str) -> Reply:
    """PATCH: a merge patch. One that changes nothing leaves the revision as it is."""
    now = services.context.clock.now()
    found = read_body(request, CALL_SHAPE, limit_bytes=MAX_BODY_BYTES)
    change_of = read_patch(found, egress=services.context.egress, now=now)
    return _call_reply(200, _changed(services, request, CallRef(tenant, call_id), change_of, now))


def fire_call(services: Services, request: Request, *, tenant: str, call_id: str) -> Reply:
    """POST: a call that waits, be it for its due time or its next attempt, is due now. One that is due already is
    left as it is."""
    now = services.context.clock.now()
    _read_nothing(request)

    def change_of(call: ServiceCall) -> CallChange:
        check_waits(call, "it cannot be fired")
        assert call.wake_at is not None
        return CallChange(due_at=round_up(now)) if call.wake_at > now else CallChange()

    return _call_reply(200, _changed(services, request, CallRef(tenant, call_id), change_of, now))


def cancel_call(services: Services, request: Request, *, tenant: str, call_id: str) -> Reply:
    """POST: a call that waits ends as Cancelled, and is kept. One that is Cancelled already is left as it is."""
    context, calls = services.context, calls_of(services)
    now = context.clock.now()
    _read_nothing(request)

    def step_of(call: ServiceCall) -> Transition | None:
        if call.status is CallStatus.CANCELLED:
            return None
        check_waits(call, "it cannot be cancelled")
        return cancelled(call, new_id=context.new_id, now=now, rules=calls.rules)

    return _call_reply(200, _stepped(services, request, CallRef(tenant, call_id), step_of, now))


def delete_call(services: Services, request: Request, *, tenant: str, call_id: str) -> Reply:
    """DELETE: a finished call goes with all that it has."""
    calls = calls_of(services)
    wanted = if_match(request)
    now = services.context.clock.now()
    for _ in range(_TRIES):
        revision = event = None
        try:
            call = calls.found(tenant, call_id, now=now)
        except CallUnreadable:  # it can only be removed
            if wanted is not None:
                raise
        else:
            _check_revision(call, wanted)
            if not call.status.is_finished:
                raise CallNotFinished(f"service call {call_id!r} is {call.status}: cancel it first to remove it")
            revision = call.revision
            event = deleted(call, DeletionReason.REQUEST, new_id=services.context.new_id, now=now)
        status = calls.store.delete_call(tenant, call_id, now=now, if_revision=revision, event=event)
        if status is DeleteStatus.DELETED:
            return Reply(status=204)
        if status is DeleteStatus.NOT_FOUND:
            raise CallNotFound(tenant, call_id)
    raise StoreUnavailable("the service call is being changed all the time")


def rerun_call(services: Services, request: Request, *, tenant: str, call_id: str) -> Reply:
    """POST: a new call that asks for the same as a finished one."""
    context, calls = services.context, calls_of(services)
    now = context.clock.now()
    found = read_body(request, PLAIN_SHAPE, limit_bytes=MAX_BODY_BYTES, is_optional=True)
    submission_of = read_rerun(request, found, now=now)
    call = calls.found(tenant, call_id, now=now)
    _check_revision(call, if_match(request))
    if not call.status.is_finished:
        raise CallNotFinished(f"service call {call_id!r} is {call.status}: it can be rerun when it has finished")
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
    new_id, rules = services.context.new_id, calls_of(services).rules

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
    context, calls = services.context, calls_of(services)
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
    reply = replace(reply, headers={**reply.headers, "location": call_path(submitted.call)})
    return reply if submitted.is_new else replayed(reply)


def _call_reply(status: int, call: ServiceCall) -> Reply:
    return Reply(status=status, body=call_json(call), headers={"etag": etag(call.revision)})
