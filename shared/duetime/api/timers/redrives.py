"""Redrives of many failed timers: by filter, a page at a time, or by ids."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET

from duetime.api.context import Services
from duetime.api.http.batches import item_result, refuse_duplicate
from duetime.api.http.errors import FieldError, InvalidFields
from duetime.api.http.parsing import read_body, validate
from duetime.api.http.request import Reply, Request
from duetime.api.http.request_models import PLAIN_SHAPE
from duetime.api.http.responses import ascii_reply, instant
from duetime.api.http.route import Route
from duetime.api.timers.parsing import check_id, read_filter
from duetime.api.timers.requests import DEFAULT_REDRIVE_ITEMS, RedriveBody
from duetime.api.timers.responses import RedriveResponse
from duetime.app.pages import PageOfWork
from duetime.domain.errors import DuetimeError
from duetime.domain.namespaces import Namespace
from duetime.domain.principals import Principal, Role

_NAMESPACE = "/v1/namespaces/<namespace>"


@Route(
    "POST",
    f"{_NAMESPACE}/redrive",
    Role.WRITER,
    summary="Redrive failed timers by filter, a page at a time, or by ids",
    body=RedriveBody,
    body_is_required=False,
    responses={200: RedriveResponse},
)
def redrive_timers(services: Services, request: Request, *, namespace: str) -> Reply:
    """Redrive failed timers: one page of those that match the filters, or those with the given ids."""
    return redrive_within(services, request, services.namespaces.get(namespace, request.principal))


def redrive_within(services: Services, request: Request, space: Namespace) -> Reply:
    """Return the same for a namespace that the caller has found."""
    found = read_body(request, PLAIN_SHAPE, is_optional=True)
    body = validate(RedriveBody, found)
    if body.ids is None:
        done = _redrive_by_filter(services, request.principal, space, body)
    else:
        others = [name for name, value in found.members.items() if name != "ids" and value is not None]
        if others:
            raise InvalidFields([FieldError(name, "cannot be given together with ids") for name in others])
        done = _redrive_by_ids(services, space, body.ids)
    return ascii_reply(done)


def _redrive_by_filter(
    services: Services, principal: Principal | None, space: Namespace, body: RedriveBody
) -> RedriveResponse:
    times = (body.due_from, body.due_to, body.failed_from, body.failed_to)
    filters = (body.reason, body.tag, body.correlation_id, *map(instant, times))
    cursors = services.cursors.of(principal, "redrive", space.name, *filters, body.dry_run)
    page = services.timers.redrive_page(
        space,
        read_filter(body),
        PageOfWork(
            cursors.decode(body.cursor),
            body.limit or DEFAULT_REDRIVE_ITEMS,
            services.context.clock.now(),
            body.dry_run or False,
        ),
        correlation_id=body.correlation_id,
    )
    return RedriveResponse(
        redriven=len(page.redriven),
        skipped=page.skipped,
        examined=page.examined,
        next_cursor=cursors.encode(page.next_cursor),
    )


def _redrive_by_ids(services: Services, space: Namespace, ids: Sequence[str]) -> RedriveResponse:
    faults: dict[int, DuetimeError] = {}
    places: dict[str, int] = {}
    for at, timer_id in enumerate(ids):
        try:
            check_id(space, timer_id)
            refuse_duplicate(timer_id, places)
        except DuetimeError as error:
            faults[at] = error
        else:
            places[timer_id] = at
    refusals = services.timers.redrive_many(space, list(places))
    items = [item_result(timer_id, faults.get(at) or refusals.get(timer_id)) for at, timer_id in enumerate(ids)]
    redriven = sum(item.problem is UNSET for item in items)
    return RedriveResponse(
        redriven=redriven, skipped=len(ids) - redriven, examined=len(ids), next_cursor=None, items=items
    )
