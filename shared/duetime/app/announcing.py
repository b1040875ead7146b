"""Events of changes that a request has made, or is about to make."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeAlias

from duetime.domain.events import Event, EventsUndelivered

_log = logging.getLogger(__name__)

Publish: TypeAlias = Callable[[Sequence[Event]], None]
"""As in ``engine.response.failure_events.FailureEvents``, from any thread."""


def announce(publish: Publish, events: Sequence[Event]) -> None:
    """Publish ``events`` in one try. What is not taken is logged whole."""
    if not events:
        return
    try:
        publish(events)
    except EventsUndelivered as error:
        for left in error.events:
            facts = {"action": "event.undelivered", "error": error.message, "event": left.document()}
            _log.error("an event could not be published", extra=facts)
