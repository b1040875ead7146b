"""Stored events of service calls."""

from __future__ import annotations

from datetime import datetime

from duetime.domain.call_events import CallEvent
from duetime.domain.hot_dataclass import hot_dataclass


@hot_dataclass(frozen=True, slots=True)
class OutboxEvent:
    """An event as it is stored."""

    event: CallEvent
    published_at: datetime | None = None
