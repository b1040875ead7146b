"""How a shard is read that has more due than may be started.

Its timers are then in four kinds: under way; waiting in memory; *deferred*, since their lane had no room; and not yet
seen. Reading from the start again and again would find the same timers every time, and stopping to read would let
one namespace hide the timers of all others. So there are three readings, each with a cursor of its own:

- NEWS looks for what has become due lately, at the usual pace: a lane with room gets its timers in time.
- SWEEP goes through all that is due, in order, as fast as the deferred lanes want more.
- DISCOVERY goes through it too, in a tenth of the time of all reading, for lanes that have nothing deferred as far
  as is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import islice

from duetime.engine.keys import LaneKey

_OVERLAP = timedelta(seconds=2)
"""How late a timer that is due at once may become visible: its client's clock differs, its commit takes time."""
_DISCOVERY_REST = 9
"""Pauses of DISCOVERY, in units of the time that it takes."""
_DISCOVERY_LAP_SECONDS = 5.0
_SHORTEST_PAUSE_SECONDS = 0.01
_EMPTY_LAP_SECONDS = 0.1
_MAX_LANES_ASKED = 50
_ASK_AGAIN_SECONDS = 0.05


class Reading(StrEnum):
    NEWS = "news"
    SWEEP = "sweep"
    DISCOVERY = "discovery"


@dataclass(slots=True, kw_only=True)
class Backlog:
    """Times are monotonic seconds, but for ``begun`` and ``frontier``: what became due between them has been read.

    ``deferred`` are the lanes that have timers in the shard which were read and not taken; ``lap_deferred`` those
    of them since the sweep last began from the start. (Dictionaries for their order: they are asked in turns.)
    """

    begun: datetime
    frontier: datetime
    deferred: dict[LaneKey, None]
    sweep_cursor: str | None
    discovery_cursor: str | None
    sweep_at: float
    discovery_at: float
    lap_deferred: dict[LaneKey, None] = field(default_factory=dict)
    swept_to: datetime | None = None
    """Up to where the sweep has come in this lap; None at its start."""
    lap_accepted: int = 0

    @property
    def news_since(self) -> datetime:
        # What was due when the backlog began is left to the other readings.
        return max(self.begun, self.frontier - _OVERLAP)

    def cursor(self, reading: Reading) -> str | None:
        return self.sweep_cursor if reading is Reading.SWEEP else self.discovery_cursor

    def may_offer(self, key: LaneKey, reading: Reading) -> bool:
        """Whether ``reading`` may hand on a timer of this lane: the older deferred ones come first."""
        return reading is Reading.SWEEP or key not in self.deferred

    def defer(self, key: LaneKey, at: datetime) -> None:
        """A timer with the index key ``at`` has to be read again; in this lap, if the sweep is yet to come there."""
        self.deferred[key] = None
        if self.swept_to is not None and at <= self.swept_to:
            self.lap_deferred[key] = None

    def plan(self, monotonic: float, wants: Callable[[LaneKey, float], bool]) -> tuple[Reading | None, float]:
        """What to read now, or else when to ask again."""
        is_wanted = self._is_wanted(monotonic, wants)
        if is_wanted and self.sweep_at <= monotonic:
            return Reading.SWEEP, monotonic
        if self.discovery_at <= monotonic:
            return Reading.DISCOVERY, monotonic
        return None, min(self.discovery_at, self.sweep_at if is_wanted else monotonic + _ASK_AGAIN_SECONDS)

    def _is_wanted(self, monotonic: float, wants: Callable[[LaneKey, float], bool]) -> bool:
        """Whether a deferred lane wants more. Those that do not go to the end, and a bounded number is asked."""
        for key in list(islice(self.deferred, _MAX_LANES_ASKED)):
            if wants(key, monotonic):
                return True
            del self.deferred[key]
            self.deferred[key] = None
        return False

    def finish_sweep(
        self,
        cursor: str | None,
        *,
        last_at: datetime | None,
        refused: Iterable[LaneKey],
        accepted: int,
        duration: float,
        monotonic: float,
    ) -> None:
        """A page of the sweep was read; ``cursor`` None: it was the last.

        Its last timer has the index key ``last_at``; ``accepted`` of its timers were taken, the lanes in ``refused``
        had no room for theirs.
        """
        for key in refused:
            self.deferred[key] = self.lap_deferred[key] = None
        self.sweep_cursor = cursor
        self.swept_to = last_at or self.swept_to
        self.lap_accepted += accepted
        self.sweep_at = monotonic if accepted else monotonic + max(duration, _SHORTEST_PAUSE_SECONDS)
        if cursor is None:
            self.deferred, self.lap_deferred = self.lap_deferred, {}
            if not self.lap_accepted:
                self.sweep_at = monotonic + max(duration, _EMPTY_LAP_SECONDS)
            self.swept_to, self.lap_accepted = None, 0

    def finish_discovery(self, cursor: str | None, *, busy_seconds: float, monotonic: float) -> None:
        """A page was read. ``busy_seconds``: what a page of each shard with a backlog takes, as far as is known."""
        self.discovery_cursor = cursor
        rest = _DISCOVERY_LAP_SECONDS if cursor is None else _SHORTEST_PAUSE_SECONDS
        self.discovery_at = monotonic + max(rest, _DISCOVERY_REST * busy_seconds)
