"""The preview of a schedule that is not stored."""

from __future__ import annotations

from duetime.api.context import Services
from duetime.api.http.parsing import read_body, validate
from duetime.api.http.request import Reply, Request
from duetime.api.http.request_models import PLAIN_SHAPE
from duetime.api.http.responses import json_reply
from duetime.api.http.route import Keeps, Route
from duetime.api.schedules.requests import SchedulePreviewBody
from duetime.api.schedules.responses import SchedulePreviewResponse, clock_change_response, occurrence_response
from duetime.app.calendars import finder
from duetime.domain.principals import Role, own_tenant
from duetime.domain.times import MILLISECOND


@Route(
    "POST",
    "/v1/schedules/preview",
    Role.READER,
    summary="Preview a schedule without storing it",
    body=SchedulePreviewBody,
    responses={200: SchedulePreviewResponse},
    keeps=Keeps.NOTHING,
)
def preview_schedule(services: Services, request: Request) -> Reply:
    """Return when a schedule would occur, with a sentence in English. Nothing is stored."""
    # Loading the calendars takes a tenth of a cold start, and other requests do without.
    from duetime.recurrence import zones
    from duetime.recurrence.clock_effects import affected_changes
    from duetime.recurrence.occurrences import recurrence
    from duetime.recurrence.words import sentence

    body = validate(SchedulePreviewBody, read_body(request, PLAIN_SHAPE))
    spec = body.timing()
    first = services.context.clock.now() if body.from_at is None else body.from_at
    find = finder(services.context.store, own_tenant(request.principal))
    calendar = None if spec.calendar is None else find(spec.calendar)
    found = recurrence(spec, calendar).occurrences(first - MILLISECOND, schedule_id=body.id or "", limit=body.count)
    zone = zones.zone(spec.time_zone)
    items = [occurrence_response(each, zone) for each in found]
    changes = [clock_change_response(each) for each in affected_changes(spec, first, calendar)]
    return json_reply(200, SchedulePreviewResponse(sentence(spec), spec.time_zone, zones.VERSION, items, changes))
