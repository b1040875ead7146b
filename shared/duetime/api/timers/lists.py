"""Lists of timers, by filters or by correlation id."""

from __future__ import annotations

from duetime.api.context import Services
from duetime.api.http.errors import FieldError, InvalidFields
from duetime.api.http.page_size import page_reply
from duetime.api.http.parsing import read_query
from duetime.api.http.request import Reply, Request
from duetime.api.http.request_models import json_name
from duetime.api.http.responses import instant
from duetime.api.http.route import Route
from duetime.api.timers.parsing import read_filter
from duetime.api.timers.requests import TimerQuery
from duetime.api.timers.responses import TimerPage, timer_response
from duetime.app.readers import shown_timer
from duetime.domain.principals import Role
from duetime.domain.timers import TimerState

_TIMERS = "/v1/namespaces/<namespace>/timers"


@Route("GET", _TIMERS, Role.READER, summary="List timers", query=TimerQuery, responses={200: TimerPage})
def list_timers(services: Services, request: Request, *, namespace: str) -> Reply:
    """Return a page of the timers that match all filters. A page may be short or empty and not be the last."""
    space = services.namespaces.get(namespace, request.principal)
    query = read_query(TimerQuery, request)
    state = _state(query)
    times = map(instant, (query.due_from, query.due_to, query.failed_from, query.failed_to))
    cursors = services.cursors.of(
        request.principal, "timers", space.name, state, query.tag, *times, query.correlation_id, query.reason
    )
    cursor = cursors.decode(query.cursor)
    wanted = read_filter(query, state=state)
    context, policy = services.context, space.settings.retry_policy
    now = context.clock.now()
    return page_reply(
        TimerPage,
        lambda limit: services.timers.list(
            space, wanted, correlation_id=query.correlation_id, cursor=cursor, limit=limit, now=now
        ),
        lambda timer: timer_response(shown_timer(timer, request.principal, context.redaction), policy),
        limit=query.limit,
        to_cursor=cursors.encode,
    )


def _state(query: TimerQuery) -> TimerState | None:
    if query.failed_from is None and query.failed_to is None:
        return query.state
    if query.state not in (None, TimerState.FAILED):
        given = [name for name in ("failed_from", "failed_to") if getattr(query, name) is not None]
        raise InvalidFields([FieldError(json_name(name), "requires state=Failed") for name in given])
    return TimerState.FAILED
