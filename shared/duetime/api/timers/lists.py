"""Lists of timers, by filters or by correlation id."""

from __future__ import annotations

from duetime.api.context import Services
from duetime.api.encoding import instant_json, list_json
from duetime.api.http.page_size import fitting_page
from duetime.api.http.parsing import read_query
from duetime.api.http.request import Reply, Request
from duetime.api.http.route import Route
from duetime.api.schemas import TimerQuery
from duetime.api.views import views_for
from duetime.app.redrives import find_timers
from duetime.domain.namespaces import Namespace
from duetime.domain.principals import Role
from duetime.domain.timers import Timer
from duetime.stores.port.pages import Page
from duetime.stores.port.timers import TimerFilter


def list_timers(services: Services, request: Request, *, namespace: str) -> Reply:
    """GET: a page of the timers that fit all filters. It may be short, even empty, and not be the last."""
    space = services.namespaces.get(namespace, request.principal)
    query = read_query(TimerQuery, request)
    bound_to = _cursor_query(space, query)
    cursor = services.cursors.decode(query.cursor, bound_to, request.principal)
    policy = space.settings.retry_policy
    show = views_for(services, request).timer
    items, next_cursor = fitting_page(
        lambda limit: _page(services, space, query, cursor, limit),
        lambda timer: show(timer, policy),
        limit=query.limit,
    )
    return Reply(status=200, body=list_json(items, services.cursors.encode(next_cursor, bound_to, request.principal)))


def _page(services: Services, space: Namespace, query: TimerQuery, cursor: str | None, limit: int) -> Page[Timer]:
    timer_filter = TimerFilter(
        state=query.state,
        tag=query.tag,
        due_from=query.due_from,
        due_to=query.due_to,
        failure_reason=query.reason,
    )
    context = services.context
    return find_timers(
        context.store,
        space,
        timer_filter,
        correlation_id=query.correlation_id,
        cursor=cursor,
        limit=limit,
        now=context.clock.now(),
    )


def _cursor_query(space: Namespace, query: TimerQuery) -> tuple[object, ...]:
    """What a cursor is bound to."""
    due = (instant_json(query.due_from), instant_json(query.due_to))
    return ("timers", space.name, query.state, query.tag, *due, query.correlation_id, query.reason)


_TIMERS = "/v1/namespaces/<namespace>/timers"

ROUTES = (
    Route(
        "GET",
        _TIMERS,
        list_timers,
        Role.READER,
        summary="List timers",
        tag="timers",
        query=TimerQuery,
        responses={200: "TimerPage"},
        problems=(400, 404),
    ),
)
