"""The attempt log of a timer."""

from __future__ import annotations

from duetime.api.context import Services
from duetime.api.encoding import list_json
from duetime.api.http import Reply, Request
from duetime.api.timers import read_address
from duetime.api.views import views_for
from duetime.domain.attempts import read_attempts
from duetime.domain.errors import TimerNotFound


def list_attempts(services: Services, request: Request, *, namespace: str, timer_id: str) -> Reply:
    """GET: the last attempts, oldest first. They are few, so they are one page."""
    space, timer_id = read_address(services, request, namespace, timer_id)
    timer = services.context.store.get_timer(space, timer_id, now=services.context.clock.now())
    if timer is None:
        raise TimerNotFound(space.name, timer_id)
    attempts = read_attempts(timer.attempt_log)
    return Reply(status=200, body=list_json(map(views_for(services, request).attempt, attempts), None))
