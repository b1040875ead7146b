"""Counters of a poller. Plain integers, written by the event loop, read by anyone."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(slots=True)
class EngineStats:
    """``lag_milliseconds_max`` is the largest lag of a first attempt since the start."""

    polls: int = 0
    poll_errors: int = 0
    timers_read: int = 0
    attempts_started: int = 0
    answers: int = 0
    fired: int = 0
    retried: int = 0
    rescheduled: int = 0
    failed: int = 0
    parked: int = 0
    superseded: int = 0
    lease_lost: int = 0
    record_batches: int = 0
    record_errors: int = 0
    quarantined: int = 0
    claims: int = 0
    leases_lost: int = 0
    lag_milliseconds_max: int = 0

    def snapshot(self) -> dict[str, int]:
        return asdict(self)
