"""Lists of timers, by filters or by correlation id."""

from __future__ import annotations

from duetime.api.context import Services
from duetime.api.encoding import instant_json, list_json, timer_json
from duetime.api.http import Reply, Request
from duetime.api.reading import read_query
from duetime.api.schemas import TimerQuery
from duetime.domain.namespaces import Namespace
from duetime.domain.timers import Timer
from duetime.stores.port import Page, TimerFilter
from duetime.stores.redriving import find_timers

# A Lambda answers with at most 6 MB of JSON, in which the body is a string: each quote in it takes two bytes.
MAX_ANSWER_CHARACTERS = 2_500_000


def list_timers(services: Services, request: Request, *, namespace: str) -> Reply:
    """GET: a page of the timers that fit all filters. It may be short, even empty, and not be the last."""
    space = services.namespaces.get(namespace, request.principal)
    query = read_query(TimerQuery, request)
    bound_to = _cursor_query(space, query)
    cursor = services.cursors.decode(query.cursor, bound_to, request.principal)
    page = _page(services, space, query, cursor, query.limit)
    items = [timer_json(timer) for timer in page.items]
    limit = query.limit
    # Payloads can make a page too big to be answered. A cursor leads behind a whole page only, so the store is
    # asked again for as many as fit.
    while len(items) > 1 and sum(map(len, items)) > MAX_ANSWER_CHARACTERS:
        limit = min(_fitting(items), limit - 1)
        page = _page(services, space, query, cursor, limit)
        items = [timer_json(timer) for timer in page.items]
    return Reply(
        status=200, body=list_json(items, services.cursors.encode(page.next_cursor, bound_to, request.principal))
    )


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


def _fitting(items: list[str]) -> int:
    """How many of ``items`` make an answer of allowed size; at least one."""
    total = 0
    for count, item in enumerate(items):
        total += len(item)
        if total > MAX_ANSWER_CHARACTERS:
            return max(1, count)
    return len(items)
