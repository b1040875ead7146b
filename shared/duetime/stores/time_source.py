"""Where a store takes lease and audit times from."""

from __future__ import annotations

from enum import StrEnum


class TimeSource(StrEnum):
    DATABASE = "database"
    """The database's clock, one instant per unit of work: workers whose clocks differ still agree on leases."""
    CALLER = "caller"
    """The ``now`` that is passed, through the same SQL: for tests with a clock of their own."""
