"""What the operations of ``core.calls.CallStore`` take and return."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TypeAlias

from duetime.domain.call_events import CallEvent
from duetime.domain.hot_dataclass import hot_dataclass
from duetime.domain.service_calls import CallStatus, ServiceCall


class ApplyStatus(StrEnum):
    APPLIED = "applied"
    SUPERSEDED = "superseded"
    """The stored call has another revision than ``before``, or is gone: nothing was written."""
    EXISTS = "exists"
    """``before`` is None and there is a call with this id or this idempotency key: nothing was written."""
    LEASE_LOST = "lease_lost"
    """The call's shard has another owner now: nothing was written."""
    UNAVAILABLE = "unavailable"
    """Where this belongs nothing can be written for now: as far as is known, nothing was written."""


class DeleteStatus(StrEnum):
    DELETED = "deleted"
    NOT_FOUND = "not_found"
    REVISION_MISMATCH = "revision_mismatch"
    RUNNING = "running"
    """A Running call is not removed; nothing was written."""


class CallOrder(StrEnum):
    NEWEST = "newest"
    """By ``call_id``, the newest first; with ``name_prefix`` by name, and the newest first within a name."""
    DUE = "due"
    """By (``due_at``, ``call_id``), the earliest first; only with ``status`` SCHEDULED."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFilter:
    """Conditions that must all hold; ``tags``: every one of them. ``submitted_from`` is inclusive,
    ``submitted_to`` exclusive, both by ``submitted_at``; ``due_to`` is inclusive."""

    status: CallStatus | None = None
    tags: tuple[str, ...] = ()
    submitted_from: datetime | None = None
    submitted_to: datetime | None = None
    due_to: datetime | None = None
    name_prefix: str | None = None
    starred: bool | None = None
    correlation_id: str | None = None
    order: CallOrder = CallOrder.NEWEST


@hot_dataclass(frozen=True, slots=True)
class CallRef:
    tenant_id: str
    call_id: str


EventOf: TypeAlias = Callable[[ServiceCall], CallEvent]
"""Makes the event of a call that is removed."""
