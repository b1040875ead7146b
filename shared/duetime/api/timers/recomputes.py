"""Timers that are due at a local time, computed again."""

from __future__ import annotations

from duetime.api.context import Services
from duetime.api.http.parsing import read_body, validate
from duetime.api.http.request import Reply, Request
from duetime.api.http.request_models import PLAIN_SHAPE, PagedBody
from duetime.api.http.responses import json_reply
from duetime.api.http.route import Route
from duetime.api.timers.responses import MovedTimersResponse
from duetime.domain.principals import Role


@Route(
    "POST",
    "/v1/namespaces/<namespace>/timers/recompute",
    Role.WRITER,
    summary="Compute again when timers with a localTime are due, a page at a time",
    body=PagedBody,
    body_is_required=False,
    responses={200: MovedTimersResponse},
)
def recompute_timers(services: Services, request: Request, *, namespace: str) -> Reply:
    """Compute again when timers with a localTime are due: for a new release of tzdata. The same is not written."""
    space = services.namespaces.get(namespace, request.principal)
    body = validate(PagedBody, read_body(request, PLAIN_SHAPE, is_optional=True))
    cursors = services.cursors.of(request.principal, "recomputeTimers", space.name, body.dry_run)
    page = services.local_timers.recompute_page(space, services.work(body, cursors))
    return json_reply(200, MovedTimersResponse(page.affected, page.skipped, cursors.encode(page.next_cursor)))
