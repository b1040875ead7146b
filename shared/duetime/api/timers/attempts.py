"""The attempt log of a timer."""

from __future__ import annotations

from duetime.api.context import Services
from duetime.api.encoding import list_json
from duetime.api.http.request import Reply, Request
from duetime.api.http.route import Route
from duetime.api.timers.endpoints import read_address
from duetime.api.views import views_for
from duetime.domain.attempts import read_attempts
from duetime.domain.errors import TimerNotFound
from duetime.domain.principals import Role


def list_attempts(services: Services, request: Request, *, namespace: str, timer_id: str) -> Reply:
    """GET: the last attempts, oldest first. They are few, so they are one page."""
    space, timer_id = read_address(services, request, namespace, timer_id)
    timer = services.context.store.timers.get(space, timer_id, now=services.context.clock.now())
    if timer is None:
        raise TimerNotFound(space.name, timer_id)
    attempts = read_attempts(timer.attempt_log)
    return Reply(status=200, body=list_json(map(views_for(services, request).attempt, attempts), None))


_TIMER = "/v1/namespaces/<namespace>/timers/<timer_id>"

ROUTES = (
    Route(
        "GET",
        f"{_TIMER}/attempts",
        list_attempts,
        Role.READER,
        summary="List the last attempts of a timer, oldest first",
        tag="timers",
        responses={200: "AttemptPage"},
        problems=(400, 404),
    ),
)
