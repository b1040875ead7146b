"""The routes: those of timers and all that is no service call's, those of service calls, and all of them.

The first route that matches counts: the words after /timers/ are ids for every method but POST.
"""

from __future__ import annotations

from duetime.api.calendars import endpoints as calendars
from duetime.api.documents import console
from duetime.api.documents.endpoints import document_routes
from duetime.api.firings import endpoints as firings
from duetime.api.http.route import Route, routes_of
from duetime.api.keys import endpoints as keys
from duetime.api.namespaces import endpoints as namespaces
from duetime.api.namespaces import secrets
from duetime.api.schedules import backfills, preview
from duetime.api.schedules import endpoints as schedules
from duetime.api.schedules import lists as schedule_lists
from duetime.api.status import endpoints as status
from duetime.api.timers import attempts, batches, lists, recomputes, redrives
from duetime.api.timers import endpoints as timers
from duetime.api.webhooks import endpoints as webhooks


def call_routes() -> tuple[Route, ...]:
    """Return the routes of service calls. They are imported when asked for: the timers API does without."""
    from duetime.api.service_calls import batches, endpoints, lists

    return routes_of(batches, endpoints, lists)


def all_routes() -> tuple[Route, ...]:
    """Return what one process serves, and the document has."""
    return (*TIMER_ROUTES, *call_routes())


TIMER_ROUTES = (
    *routes_of(namespaces, secrets, batches, timers, lists, redrives, recomputes, attempts, firings, keys, webhooks),
    *routes_of(schedules, schedule_lists, backfills, preview, calendars, status),
    *document_routes(all_routes),
    *routes_of(console),
)
