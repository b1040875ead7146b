"""Submits the service calls of schedules (``engine.firing.call_submission``)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from duetime.calls.submission import Submitter
from duetime.domain.call_templates import open_key, submission_of
from duetime.domain.errors import CallUnreadable, DuetimeError, ScheduleUnreadable, StoreUnavailable
from duetime.domain.service_calls import Submission, timer_of
from duetime.domain.timers import Timer
from duetime.domain.times import round_down
from duetime.engine.firing.call_submission import TenantTimer
from duetime.stores.core.calls import CallStore


class OccurrenceCalls:
    """Implements ``CallSubmission``."""

    def __init__(self, calls: CallStore, submitter: Submitter) -> None:
        self._calls = calls
        self._submitter = submitter

    def submit(self, occurrences: Sequence[TenantTimer], *, now: datetime) -> list[str | DuetimeError]:
        results: dict[int, str | DuetimeError] = {}
        wanted: dict[str, dict[int, Submission]] = {}
        for at, (tenant_id, timer) in enumerate(occurrences):
            try:
                wanted.setdefault(tenant_id, {})[at] = submission_of(timer)
            except (ValueError, TypeError, KeyError):
                results[at] = ScheduleUnreadable(timer.schedule_id or "")
        for tenant_id, of_tenant in wanted.items():
            done = self._submitter.submit_many(tenant_id, list(of_tenant.values()), now=round_down(now))
            for at, result in zip(of_tenant, done, strict=True):
                if isinstance(result, StoreUnavailable):
                    raise result
                results[at] = result if isinstance(result, DuetimeError) else result.call.call_id
        return [results[at] for at in range(len(occurrences))]

    def ongoing(self, schedules: Sequence[TenantTimer], *, now: datetime) -> list[Timer | None]:
        return [self._ongoing(tenant_id, timer, now) for tenant_id, timer in schedules]

    def _ongoing(self, tenant_id: str, schedule: Timer, now: datetime) -> Timer | None:
        try:
            call = self._calls.find_by_idempotency_key(tenant_id, open_key(schedule), now=now)
        except CallUnreadable:  # nothing is sent for it
            return None
        return None if call is None or call.status.is_finished else timer_of(call)
