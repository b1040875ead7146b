"""Lists of service calls, and of what is kept about one: executions and events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from datetime import timedelta
from typing import Any

from duetime.api.context import Services
from duetime.api.http.errors import FieldError, InvalidFields
from duetime.api.http.page_size import page_reply
from duetime.api.http.parsing import read_query
from duetime.api.http.request import Reply, Request
from duetime.api.http.request_models import PageQuery
from duetime.api.http.responses import ascii_reply, encode_ascii
from duetime.api.http.route import Route
from duetime.api.service_calls.requests import CallQuery, EventQuery
from duetime.api.service_calls.responses import (
    EventPage,
    ExecutionPage,
    ExecutionResponse,
    ServiceCallPage,
    call_response,
    event_response,
    execution_response,
)
from duetime.api.service_calls.validators import sequence
from duetime.app.readers import shown_call
from duetime.domain.call_events import CallEvent
from duetime.domain.errors import ExecutionNotFound, InvalidInput
from duetime.domain.ids import is_uuid
from duetime.domain.principals import Role
from duetime.domain.service_calls import CallStatus, ServiceCall
from duetime.stores.port.calls import CallFilter, CallOrder, CallRef

LAST_EVENT_ID = "Last-Event-ID"


_SERVICE_CALLS = "/v1/tenants/<tenant>/service-calls"
_EXECUTIONS = "/v1/tenants/<tenant>/service-calls/<service_call_id>/executions"
_SERVICE_CALL = "/v1/tenants/<tenant>/service-calls/<service_call_id>"


@Route(
    "GET",
    _SERVICE_CALLS,
    Role.READER,
    summary="List service calls",
    query=CallQuery,
    responses={200: ServiceCallPage},
)
def list_service_calls(services: Services, request: Request, *, tenant: str) -> Reply:
    """Return a page of the service calls that match all filters. A page may be short or empty and not be the last."""
    query = read_query(CallQuery, request, lists=("tag",))
    call_filter = _filter(query)
    store, now = services.calls.store, services.context.clock.now()
    cursors = services.cursors.of(request.principal, "calls", tenant, repr(call_filter))
    cursor = cursors.decode(query.cursor)
    rules = services.context.redaction
    return page_reply(
        ServiceCallPage,
        lambda limit: store.list(tenant, call_filter, cursor=cursor, limit=limit, now=now),
        lambda call: call_response(shown_call(call, request.principal, rules), with_body=False),
        limit=query.limit,
        to_cursor=cursors.encode,
    )


@Route(
    "GET",
    _EXECUTIONS,
    Role.READER,
    summary="List the executions of a service call, without bodies",
    query=PageQuery,
    responses={200: ExecutionPage},
    problems=(409,),
)
def list_executions(services: Services, request: Request, *, tenant: str, service_call_id: str) -> Reply:
    """Return the executions of a service call, newest first, without bodies."""
    calls = services.calls
    query = read_query(PageQuery, request)
    calls.get(CallRef(tenant, service_call_id), now=services.context.clock.now())
    cursors = services.cursors.of(request.principal, "executions", tenant, service_call_id)
    cursor = cursors.decode(query.cursor)
    return page_reply(
        ExecutionPage,
        lambda limit: calls.store.list_executions(
            tenant, service_call_id, cursor=cursor, limit=limit, with_bodies=False
        ),
        lambda execution: execution_response(execution, with_bodies=False),
        limit=query.limit,
        to_cursor=cursors.encode,
        encode=encode_ascii,
    )


@Route(
    "GET",
    f"{_EXECUTIONS}/<execution_id>",
    Role.READER,
    summary="Read an execution: what was sent and what came back",
    responses={200: ExecutionResponse},
    problems=(409,),
)
def get_execution(
    services: Services,
    request: Request,  # noqa: ARG001
    *,
    tenant: str,
    service_call_id: str,
    execution_id: str,
) -> Reply:
    """Return an execution with its request and response."""
    calls = services.calls
    calls.get(CallRef(tenant, service_call_id), now=services.context.clock.now())
    found = calls.store.get_execution(tenant, service_call_id, execution_id) if is_uuid(execution_id) else None
    if found is None:
        raise ExecutionNotFound(service_call_id, execution_id)
    return ascii_reply(execution_response(found))


@Route(
    "GET",
    f"{_SERVICE_CALL}/events",
    Role.READER,
    summary="List the events of a service call in order; as server-sent events where one process serves all,"
    " with a 204 when there will be no more",
    query=EventQuery,
    responses={200: EventPage, 204: None},
    media_types={200: "text/event-stream"},
    problems=(409,),
    headers=(LAST_EVENT_ID,),
)
def list_events(services: Services, request: Request, *, tenant: str, service_call_id: str) -> Reply:
    """Return the events of a service call in order, after a sequence number.

    The header ``Last-Event-ID``, which clients of server-sent events send when they reconnect, stands for
    ``after``.
    """
    calls = services.calls
    query = read_query(EventQuery, request)
    after = _last_event_id(request, query.after)
    call = calls.get(CallRef(tenant, service_call_id), now=services.context.clock.now())
    events = calls.store.list_events(tenant, service_call_id, after=after, limit=query.limit)
    next_after = events[-1].sequence if events else after
    page = EventPage([event_response(event) for event in events], next_after, is_complete(call, events))
    return ascii_reply(page)


def is_complete(call: ServiceCall, events: Sequence[CallEvent]) -> bool:
    """Tell whether ``call`` has finished and nothing follows ``events``, which were read after it.

    Events that came since then are not counted in the call. Where there are none, those that are not there any more
    (published events are pruned before their call expires) are not waited for.
    """
    return call.status.is_finished and (not events or events[-1].sequence >= call.event_count)


def _last_event_id(request: Request, after: int) -> int:
    header = request.header(LAST_EVENT_ID.lower())
    if not header:
        return after
    try:
        return sequence(header)
    except ValueError as error:
        raise InvalidInput(LAST_EVENT_ID, str(error)) from None


def _filter(query: CallQuery) -> CallFilter:
    faults = []
    if query.order is not None and query.status is not CallStatus.SCHEDULED:
        faults.append(FieldError("order", "dueAt requires status=Scheduled"))
    if query.due_to is not None and query.order is None:
        faults.append(FieldError("dueTo", "requires order=dueAt"))
    if faults:
        raise InvalidFields(faults)
    renamed: dict[str, Any] = {
        "tags": tuple(sorted(query.tag or ())),
        "submitted_from": query.created_from,
        "submitted_to": query.created_to,
        # The bound of the store is inclusive, and instants are whole milliseconds.
        "due_to": None if query.due_to is None else query.due_to - timedelta(milliseconds=1),
        "name_prefix": query.name,
        "order": CallOrder.NEWEST if query.order is None else CallOrder.DUE,
    }
    same = {each.name: getattr(query, each.name) for each in fields(CallFilter) if each.name not in renamed}
    return CallFilter(**same, **renamed)
