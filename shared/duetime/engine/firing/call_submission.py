"""The hook of schedules that submit service calls: who stores the calls."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

from duetime.domain.errors import DuetimeError
from duetime.domain.timers import Timer


class TenantTimer(NamedTuple):
    """A schedule, or an occurrence of one, and whose it is."""

    tenant_id: str
    timer: Timer


class CallSubmission(Protocol):
    """Called in a thread. Raises ``StoreUnavailable`` and ``StoreNotReady``, and is called again with the same."""

    def submit(self, occurrences: Sequence[TenantTimer], *, now: datetime) -> list[str | DuetimeError]:
        """Store the service call of each occurrence, and return its id, or why it is refused for good.

        The same occurrence again leads to the same call.
        """
        ...

    def ongoing(self, schedules: Sequence[TenantTimer], *, now: datetime) -> list[Timer | None]:
        """Return the timer of the call of each one's occurrence at ``schedule.open_at``; None when it has ended."""
        ...
