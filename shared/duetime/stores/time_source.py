"""Where a store takes lease and audit times from, and what its clock reads."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class TimeSource(StrEnum):
    DATABASE = "database"
    """The database's clock, one instant per unit of work: workers whose clocks differ still agree on leases."""
    CALLER = "caller"
    """The ``now`` that is passed, through the same SQL: for tests with a clock of their own."""


@dataclass(frozen=True, slots=True)
class StoreTime:
    """A store's clock stood at ``at`` or later, by less than ``resolution_seconds``."""

    at: datetime
    resolution_seconds: float
