"""What was promised, what arrived, and the difference: pure functions over the callbacks that a receiver noted."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Flag, auto

from tests.support.callbacks import Arrival

EARLY = timedelta(milliseconds=50)
"""The offset of a clock is known to half a round trip: less than this is no early callback."""
LATE = timedelta(seconds=1)


class Allowed(Flag):
    """What a fault excuses."""

    NOTHING = 0
    REPEATS = auto()
    """Several callbacks of one firing: a crash, or a lease that was lost."""


@dataclass(frozen=True, slots=True)
class Expected:
    """A timer that was accepted: how many of its firings must arrive, and how many may."""

    due_at: datetime
    at_least: int = 1
    at_most: int = 1
    is_by_hand: bool = False
    """Fired by hand, so no callback of it is early."""


@dataclass(frozen=True, slots=True)
class Disposition:
    """Counts over the accepted timers; lags in seconds."""

    accepted: int
    lost: int
    repeated: int
    """Callbacks beyond the first of one firing (one ``webhook-id``)."""
    doubled: int
    """Firings of a timer (different ``webhook-id``) beyond those that were asked for."""
    early: int
    late: int
    lag_p50: float
    lag_max: float

    def breaches(self, allowed: Allowed) -> list[str]:
        """The promises that were broken and that ``allowed`` does not excuse."""
        counts = {"lost": self.lost, "doubled": self.doubled, "early": self.early}
        if Allowed.REPEATS not in allowed:
            counts["repeated"] = self.repeated
        broken = [name for name, count in counts.items() if count]
        return broken if self.accepted else [*broken, "nothing was accepted"]


def judge(expected: Mapping[str, Expected], arrivals: Iterable[Arrival]) -> Disposition:
    """Arrivals of timers that are not ``expected`` do not count: their creation was not answered."""
    firings: dict[str, Counter[str]] = defaultdict(Counter)
    early = 0
    lags: list[float] = []
    for arrival in arrivals:
        promise = expected.get(arrival.timer_id)
        if promise is None:
            continue
        of_timer = firings[arrival.timer_id]
        of_timer[arrival.headers["webhook-id"]] += 1
        lag = arrival.lateness_seconds
        early += lag < -EARLY.total_seconds() and not promise.is_by_hand
        if of_timer.total() == 1 and not promise.is_by_hand:
            lags.append(lag)
    lags.sort()
    return Disposition(
        accepted=len(expected),
        lost=sum(len(firings[timer_id]) < promise.at_least for timer_id, promise in expected.items()),
        repeated=sum(of_timer.total() - len(of_timer) for of_timer in firings.values()),
        doubled=sum(
            max(0, len(firings[timer_id]) - max(1, promise.at_most)) + (promise.at_most == 0 < len(firings[timer_id]))
            for timer_id, promise in expected.items()
        ),
        early=early,
        late=sum(lag > LATE.total_seconds() for lag in lags),
        lag_p50=lags[len(lags) // 2] if lags else 0.0,
        lag_max=lags[-1] if lags else 0.0,
    )
