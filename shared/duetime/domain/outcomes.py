"""What an attempt leads to: the change that the engine records on the timer that it fired."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from duetime.domain.shards import Lease
from duetime.domain.timers import Failure, Timer, TimerState


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The new values of a timer after an attempt. Applies only to ``timer``'s revision and firing.

    ``timer`` is the timer as it was read and fired. The recorded revision is ``timer.revision + 1``.

    - fired: ``state`` FIRED, ``next_attempt_at`` None, ``fired_at`` and ``expires_at`` set
    - retry: ``state`` SCHEDULED, ``next_attempt_at`` later, same ``execute_at`` and ``firing_id``
    - rescheduled by the receiver: ``state`` SCHEDULED, new ``execute_at`` = ``next_attempt_at``, new
      ``firing_id``, ``attempts`` 0
    - parked: ``state`` FIRING, ``next_attempt_at`` = when it may be fired again
    - failed: ``state`` FAILED, ``next_attempt_at`` None, ``failure`` and ``expires_at`` set
    """

    timer: Timer
    state: TimerState
    attempts: int
    execute_at: datetime
    next_attempt_at: datetime | None
    firing_id: str
    fired_at: datetime | None = None
    failure: Failure | None = None
    expires_at: datetime | None = None
    attempt_log: str | None = None
    """None: as it is on ``timer``."""


@dataclass(frozen=True, slots=True)
class LeasedOutcome:
    """An outcome and the lease under which its attempt was started.

    Each has its own: a parked attempt may outlive its lease, and its shard may have come back under another version.
    """

    outcome: Outcome
    lease: Lease

    @property
    def fence(self) -> Lease | None:
        """The lease that must be the stored one. None: a parked timer's row belongs to the attempt that parked it."""
        return None if self.outcome.timer.state is TimerState.FIRING else self.lease


class RecordStatus(StrEnum):
    APPLIED = "applied"
    SUPERSEDED = "superseded"
    """Its owner updated, replaced or deleted the timer meanwhile: nothing was written."""
    LEASE_LOST = "lease_lost"
    """The shard has another owner now: nothing was written."""
    REFUSED = "refused"
    """The database takes everything but this outcome, and will not take it later either: nothing was written."""
