"""The attempt log of a timer."""

from __future__ import annotations

from duetime.api.context import Services
from duetime.api.http.request import Reply, Request
from duetime.api.http.responses import ascii_reply
from duetime.api.http.route import Route
from duetime.api.timers.endpoints import timer_address
from duetime.api.timers.responses import AttemptPage, attempt_response
from duetime.app.readers import shown_attempt
from duetime.domain.attempts import read_attempts
from duetime.domain.principals import Role
from duetime.domain.timers import Timer

_TIMER = "/v1/namespaces/<namespace>/timers/<timer_id>"


@Route(
    "GET",
    f"{_TIMER}/attempts",
    Role.READER,
    summary="List the last attempts of a timer, oldest first",
    responses={200: AttemptPage},
)
def list_attempts(services: Services, request: Request, *, namespace: str, timer_id: str) -> Reply:
    """Return the last attempts of a timer, oldest first, on one page."""
    space, timer_id = timer_address(services, request, namespace, timer_id)
    return attempts_reply(services, request, services.timers.get(space, timer_id, now=services.context.clock.now()))


def attempts_reply(services: Services, request: Request, timer: Timer) -> Reply:
    rules = services.context.redaction
    shown = [shown_attempt(each, request.principal, rules) for each in read_attempts(timer.attempt_log)]
    return ascii_reply(AttemptPage([attempt_response(each) for each in shown], None))
