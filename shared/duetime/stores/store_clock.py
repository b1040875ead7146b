"""The clock that processes share: their store's.

Every machine has a clock of its own, and one may be wrong. So nothing is judged by it: a ``StoreClock`` learns how
the store's time goes with this machine's monotonic clock, which nobody sets, and tells the time by that. A clock of
the machine that is minutes off, or that is set while the process runs, moves nothing.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from duetime.domain.clock import Clock
from duetime.domain.errors import StoreError, StoreUnavailable
from duetime.domain.times import round_down, round_up
from duetime.stores.time_source import StoreTime

log = logging.getLogger(__name__)

TOLERANCE_SECONDS = 1.0
"""By how much clocks may differ, and times that were measured contradict one another, before somebody is told."""
_CLOCK_AGE_SECONDS = 60.0
"""How old a measurement may be where no poller renews it: a clock drifts by milliseconds in that time."""
_TELL_AGAIN_SECONDS = 600.0
_DRIFT = 200e-6
"""Seconds a second: how much faster or slower than another a clock may go, and be well."""


class TimedStore(Protocol):
    """The part of ``Store`` that is used."""

    def time(self, *, now: datetime) -> StoreTime: ...


@dataclass(frozen=True, slots=True)
class _Bounds:
    """At ``monotonic``, the store's clock stood between ``earliest`` and ``latest``."""

    monotonic: float
    earliest: datetime
    latest: datetime

    def at(self, monotonic: float) -> _Bounds:
        """Return what that says of a later moment."""
        elapsed = monotonic - self.monotonic
        drift = elapsed * _DRIFT
        return _Bounds(
            monotonic,
            self.earliest + timedelta(seconds=elapsed - drift),
            self.latest + timedelta(seconds=elapsed + drift),
        )

    def gap_seconds(self, other: _Bounds) -> float:
        """Return how far from one another they are, both at one moment; 0 or less where they have times in common."""
        return (max(self.earliest, other.earliest) - min(self.latest, other.latest)).total_seconds()

    def within(self, other: _Bounds) -> _Bounds:
        """Return what both say, both at one moment; what ``self`` says where they contradict one another."""
        if self.gap_seconds(other) > 0:
            return self
        return _Bounds(self.monotonic, max(self.earliest, other.earliest), min(self.latest, other.latest))


@dataclass(frozen=True, slots=True)
class _Fix:
    """What was last learned. At ``bounds.monotonic`` it is ``at``, while the machine's own clock says ``own``."""

    bounds: _Bounds
    at: datetime
    own: datetime


class StoreClock:
    """Implements ``domain.clock.Clock``. Thread-safe.

    Where the machine's clock agrees with what was measured, as exactly as that is known, it is the machine's time;
    elsewhere the earliest that the store's can be, so that nothing is taken for due too early. Several measurements
    together say more than one: that is how a ``Date`` in whole seconds becomes a time within parts of one.
    """

    def __init__(self, store: TimedStore, clock: Clock) -> None:
        """``clock``: the machine's, which is told until the first measurement."""
        self._store = store
        self._clock = clock
        self.monotonic = clock.monotonic  # asked for a dozen times for each timer
        self._fix: _Fix | None = None
        self._measuring = threading.Lock()
        self._told: tuple[float, float] | None = None
        self._tried_at = float("-inf")

    def now(self) -> datetime:
        """In whole milliseconds, rounded down."""
        fix = self._fix
        if fix is None:
            return self._clock.now()
        return round_down(fix.at + timedelta(seconds=self._clock.monotonic() - fix.bounds.monotonic))

    def monotonic_at(self, instant: datetime) -> float:
        """Return what ``monotonic`` says as ``now`` reaches ``instant``; it may be in the past."""
        fix, reached = self._fix, round_up(instant)
        if fix is None:
            return self.monotonic() + (reached - self.now()).total_seconds()
        return fix.bounds.monotonic + (reached - fix.at).total_seconds()

    @property
    def offset_seconds(self) -> float | None:
        """How far the machine's clock is ahead of the store's; 0 within what can be told. None: not measured yet."""
        return None if self._fix is None else (self._clock.now() - self.now()).total_seconds()

    @property
    def has_jumped(self) -> bool:
        """Whether the machine's clock and its monotonic one have parted since the last measurement.

        Then somebody has set the clock, or the machine has slept without counting: what was measured, and leases,
        are not to be trusted before the store was asked again.
        """
        fix = self._fix
        if fix is None:
            return False
        elapsed = self._clock.monotonic() - fix.bounds.monotonic
        return abs((self._clock.now() - fix.own).total_seconds() - elapsed) > TOLERANCE_SECONDS

    def measure(self) -> None:
        """Ask the store for its time. Blocks for a request, or two when the answer contradicts what was known.

        Raises ``StoreError``, and ``StoreUnavailable`` where two answers in a row contradict one another: the time
        cannot be told.
        """
        with self._measuring:
            self._tried_at = self._clock.monotonic()
            bounds, own = self._read()
            known = None if self._fix is None else self._fix.bounds.at(bounds.monotonic)
            if known is not None and bounds.gap_seconds(known) > TOLERANCE_SECONDS:
                first = bounds
                bounds, own = self._read()
                if bounds.gap_seconds(first.at(bounds.monotonic)) > TOLERANCE_SECONDS:
                    raise StoreUnavailable("the store's time cannot be told: it answers with times far apart")
                log.warning(
                    "the store's clock was set, or this machine slept",
                    extra={"action": "clock.jumped", "seconds": round(bounds.gap_seconds(known), 3)},
                )
                known = None
            bounds = bounds if known is None else bounds.within(known.at(bounds.monotonic))
            is_right = bounds.earliest <= own <= bounds.latest
            self._fix = _Fix(bounds, own if is_right else bounds.earliest, own)
            self._tell((own - self._fix.at).total_seconds())

    def keep(self, *, max_age_seconds: float = _CLOCK_AGE_SECONDS) -> None:
        """Measure if that was last tried longer ago, or the machine's clock has jumped. An error changes nothing."""
        if self._clock.monotonic() - self._tried_at < max_age_seconds and not self.has_jumped:
            return
        try:
            self.measure()
        except StoreError as error:
            log.warning(
                "the store's time could not be measured: %s",
                error,
                extra={"action": "clock.unmeasured", "error": error.code},
            )

    def _read(self) -> tuple[_Bounds, datetime]:
        """Return what the store answers, and the machine's time when the answer came."""
        sent = self._clock.monotonic()
        answer = self._store.time(now=self._clock.now())
        received, own = self._clock.monotonic(), self._clock.now()
        latest = answer.at + timedelta(seconds=answer.resolution_seconds + received - sent)
        return _Bounds(received, answer.at, latest), own

    def _tell(self, offset_seconds: float) -> None:
        """Warn when the offset has become large or another one, and every now and then while it is."""
        monotonic, told = self._clock.monotonic(), self._told
        if abs(offset_seconds) <= TOLERANCE_SECONDS:
            if told is not None:
                self._told = None
                log.info("this machine's clock agrees with the store's again", extra={"action": "clock.agrees"})
            return
        is_known = told is not None and abs(offset_seconds - told[0]) <= TOLERANCE_SECONDS
        if told is None or not is_known or monotonic - told[1] >= _TELL_AGAIN_SECONDS:
            self._told = (offset_seconds, monotonic)
            log.warning(
                "this machine's clock differs from the store's, by which timers fire: set it right",
                extra={"action": "clock.differs", "offset_seconds": round(offset_seconds, 3)},
            )
