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


@dataclass(frozen=True, slots=True)
class _HeldPage:
    """A page of the sweep with timers that were not taken: it is read again, unless others want what comes after."""

    cursor: str | None
    swept_to: datetime | None
    """Where the sweep was before the page."""
    next_cursor: str | None
    refused: frozenset[LaneKey]


@dataclass(slots=True, kw_only=True)
class Backlog:
    """Times are monotonic seconds, but for ``begun``, from when on the news are read, and ``swept_to``.

    ``deferred`` are the lanes that have timers in the shard which were read and not taken; ``lap_deferred`` those
    of them since the sweep last began from the start. (Dictionaries for their order: they are asked in turns.)
    """

    begun: datetime
    deferred: dict[LaneKey, None]
    sweep_cursor: str | None
    discovery_cursor: str | None
    sweep_at: float
    discovery_at: float
    lap_deferred: dict[LaneKey, None] = field(default_factory=dict)
    swept_to: datetime | None = None
    """Up to where the sweep has come in this lap; None at its start."""
    lap_accepted: int = 0
    is_over: bool = False
    """The sweep has gone through all that is due, and nothing was left behind."""
    _held: _HeldPage | None = None

    def news_since(self, read_until: datetime | None) -> datetime:
        """From when on a full read of the news looks: what was due when the backlog began is left to the others."""
        return self.begun if read_until is None else max(self.begun, read_until - _OVERLAP)

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
        wanting = self._wanting(monotonic, wants)
        if wanting and self.sweep_at <= monotonic:
            self._choose_sweep(wanting)
            if not self.is_over:
                return Reading.SWEEP, monotonic
        if self.discovery_at <= monotonic:
            return Reading.DISCOVERY, monotonic
        return None, min(self.discovery_at, self.sweep_at if wanting else monotonic + _ASK_AGAIN_SECONDS)

    def _wanting(self, monotonic: float, wants: Callable[[LaneKey, float], bool]) -> list[LaneKey]:
        """Deferred lanes that want more, of a bounded number that is asked. Those that do not go to the end."""
        wanting = []
        for key in list(islice(self.deferred, _MAX_LANES_ASKED)):
            if wants(key, monotonic):
                wanting.append(key)
            else:
                del self.deferred[key]
                self.deferred[key] = None
        return wanting

    def _choose_sweep(self, wanting: list[LaneKey]) -> None:
        """The page with refused timers again, or, if it has nothing for a lane that wants more, the one after it."""
        held, self._held = self._held, None
        if held is None:
            return
        if held.refused.issuperset(wanting):
            self.sweep_cursor, self.swept_to = held.cursor, held.swept_to
        else:
            self._go_on(held.next_cursor, held.refused)

    def _go_on(self, cursor: str | None, left_behind: Iterable[LaneKey]) -> None:
        for key in left_behind:
            self.lap_deferred[key] = None
        self.sweep_cursor = cursor
        if cursor is None:
            self.deferred, self.lap_deferred = self.lap_deferred, {}
            self.is_over = not self.deferred
            self.swept_to, self.lap_accepted = None, 0

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
        held = _HeldPage(self.sweep_cursor, self.swept_to, cursor, frozenset(refused))
        for key in held.refused:
            self.deferred[key] = None
        self.swept_to = last_at or self.swept_to
        self.lap_accepted += accepted
        pause = _EMPTY_LAP_SECONDS if cursor is None and not self.lap_accepted else _SHORTEST_PAUSE_SECONDS
        self.sweep_at = monotonic if accepted else monotonic + max(duration, pause)
        if held.refused:
            self._held = held
        else:
            self._go_on(cursor, ())

    def finish_discovery(self, cursor: str | None, *, busy_seconds: float, monotonic: float) -> None:
        """A page was read. ``busy_seconds``: what a page of each shard with a backlog takes, as far as is known."""
        self.discovery_cursor = cursor
        rest = _DISCOVERY_LAP_SECONDS if cursor is None else _SHORTEST_PAUSE_SECONDS
        self.discovery_at = monotonic + max(rest, _DISCOVERY_REST * busy_seconds)
