"""The real clock. Nothing outside ``runtime`` reads the time from the system."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from duetime.domain.times import round_down


class SystemClock:
    """``domain.clock.Clock`` from the system's clocks; ``now`` in whole milliseconds, rounded down."""

    def now(self) -> datetime:
        return round_down(datetime.now(UTC))

    monotonic = staticmethod(time.monotonic)
