"""Backfills of a schedule: start one, cancel what is still to be sent. A page at a time."""

from __future__ import annotations

from duetime.api.context import Services
from duetime.api.http.parsing import read_body, validate
from duetime.api.http.request import Reply, Request
from duetime.api.http.request_models import PLAIN_SHAPE, PagedBody
from duetime.api.http.responses import instant, json_reply
from duetime.api.http.route import Route
from duetime.api.schedules.endpoints import schedule_address
from duetime.api.schedules.requests import BackfillBody
from duetime.api.schedules.responses import BackfillResponse, CancelBackfillResponse
from duetime.app.backfill import BackfillRange
from duetime.domain.principals import Role
from duetime.domain.times import MAX_INSTANT

_BACKFILL = "/v1/namespaces/<namespace>/schedules/<schedule_id>/backfill"


@Route(
    "POST",
    _BACKFILL,
    Role.WRITER,
    summary="Send occurrences of the past once more, or late, a page at a time",
    body=BackfillBody,
    responses={200: BackfillResponse},
    problems=(507,),
)
def backfill_schedule(services: Services, request: Request, *, namespace: str, schedule_id: str) -> Reply:
    """Send occurrences of the past once more, or late: a page of those in the range, at a bounded rate."""
    space, schedule_id = schedule_address(services, request, namespace, schedule_id)
    body = validate(BackfillBody, read_body(request, PLAIN_SHAPE))
    values = (instant(body.from_at), instant(body.to_at), body.rate_limit, body.dry_run)
    cursors = services.cursors.of(request.principal, "backfill", space.name, schedule_id, *values)
    wanted = BackfillRange(from_at=body.from_at, to_at=body.to_at or MAX_INSTANT, per_second=body.rate_limit)
    page = services.backfills.backfill_page(space, schedule_id, wanted, services.work(body, cursors))
    response = BackfillResponse(
        page.created, page.skipped, instant(page.last_due_at), cursors.encode(page.next_cursor)
    )
    return json_reply(200, response)


@Route(
    "POST",
    f"{_BACKFILL}/cancel",
    Role.WRITER,
    summary="Cancel what backfills of a schedule are still to send, a page at a time",
    body=PagedBody,
    body_is_required=False,
    responses={200: CancelBackfillResponse},
)
def cancel_backfill(services: Services, request: Request, *, namespace: str, schedule_id: str) -> Reply:
    """Remove what the backfills of a schedule are still to send: a page of it. What is in flight ends."""
    space, schedule_id = schedule_address(services, request, namespace, schedule_id)
    body = validate(PagedBody, read_body(request, PLAIN_SHAPE, is_optional=True))
    cursors = services.cursors.of(request.principal, "cancelBackfill", space.name, schedule_id, body.dry_run)
    page = services.backfills.cancel_page(space, schedule_id, services.work(body, cursors))
    return json_reply(200, CancelBackfillResponse(page.affected, page.skipped, cursors.encode(page.next_cursor)))
