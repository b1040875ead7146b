"""How the due timers of one shard are read.

What is due in a shard is one list in the order of time, and each read takes one page of it, wherever that begins.
A queue without room for a timer of the page is *left* there: from then on only the page where it was left serves it,
and pages further on pass over its timers, as over those of a namespace that has no room at all.
The TAIL reads what became due since it last ended, the CATCH_UP reads the page where a queue was left that has room
again (queues take turns), and the SURVEY goes through the whole list, so that no timer stays unseen wherever it lies.
While no queue is left, a survey is a read or two and takes place at every poll interval, and the tail only serves the
times that are known in advance.
While queues are left, a survey has three quarters of the time until it is through, and then rests nine times as long.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import IntEnum
from itertools import islice
from math import inf
from typing import NamedTuple

from duetime.domain.times import MAX_INSTANT, MIN_INSTANT
from duetime.engine.keys import QueueKey, queue_key_of
from duetime.engine.settings import EngineSettings
from duetime.engine.waiting import backoff_after
from duetime.stores.port.timers import DuePage

_LOOK_BACK = timedelta(seconds=2)
"""How late a timer that is due at once may become visible: its client's clock differs, its commit takes time."""
_CATCH_UP_REST = 1 / 9
_CATCH_UP_REST_IN_SURVEY = 3
"""Rests after a page, in units of the time that it took: that time is for the other readings."""
_SURVEY_REST = 9
"""The same after a survey, while queues are left."""
_SHORTEST_REST_SECONDS = 0.01
_REST_WHEN_STUCK_SECONDS = 0.1
_SURVEY_INTERVAL_SECONDS = 5.0
_ASK_AGAIN_SECONDS = 0.05
_ASK_AGAIN_INTERVALS = 1 / 16
"""Queues that were left are asked again so much later whether they have room, by whichever is longer."""
_MAX_QUEUES_ASKED = 50


class Reading(IntEnum):
    """In the order in which they come first."""

    TAIL = 0
    CATCH_UP = 1
    SURVEY = 2


class Position(NamedTuple):
    """A place in the list: the beginning of the instant ``at``, or within it the end of a page, by its cursor.

    Positions compare as their places do. Where a store's cursors within one instant do not, nothing gets lost: the
    survey finds what was passed over.
    """

    at: datetime
    cursor: str = ""


class Span(NamedTuple):
    """A part of the list. A page begins after its cursor and ends with its last timer."""

    begin: Position
    end: Position


START = Position(MIN_INSTANT)
END = Position(MAX_INSTANT)


class Unwanted:
    """Whose timers a page passes over: queues that were left before it, and namespaces that have no room.

    Asked in the thread that reads. ``left`` may grow meanwhile, which is as good: what was met is left here, too.
    ``met``: the queues that timers were passed over of.
    """

    def __init__(self, left: Mapping[QueueKey, Span], position: Position, is_full: Callable[[str], bool]) -> None:
        self._left = left
        self._position = position
        self._is_full = is_full
        self.met: set[QueueKey] = set()

    @property
    def namespaces(self) -> set[str]:
        return {namespace for namespace, _ in self.met}

    def is_any(self) -> bool:
        """Return False when every timer is wanted, as far as is known."""
        return any(span.begin < self._position or self._is_full(key[0]) for key, span in list(self._left.items()))

    def wants(self, namespace: str, callback_url: str) -> bool:
        """``IsWanted`` of the store's port."""
        key = queue_key_of(namespace, callback_url)
        left = self._left.get(key)
        if not (left is not None and left.begin < self._position) and not self._is_full(namespace):
            return True
        self.met.add(key)
        return False


@dataclass(frozen=True, slots=True)
class PageRequest:
    """What ``TimerStore.due`` is asked for: the page at ``position``, due ``until``."""

    shard_id: int
    reading: Reading
    position: Position
    until: datetime
    unwanted: Unwanted
    known_next: datetime | None = None

    @property
    def cursor(self) -> str | None:
        return self.position.cursor or None

    @property
    def since(self) -> datetime | None:
        return None if self.position.cursor or self.position == START else self.position.at

    @property
    def is_whole(self) -> bool:
        """Whether it asks for all that is due, from the start."""
        return self.reading is Reading.SURVEY and self.position == START

    @property
    def order(self) -> tuple[bool, Reading, Position]:
        """Of several reads the lowest comes first: what looks for new timers, then what is furthest behind."""
        return not (self.reading is Reading.TAIL or self.is_whole), self.reading, self.position

    def span_of(self, page: DuePage) -> Span:
        """Return the part of the list that the response holds: all there is to the end, when there is no page after
        it."""
        if page.cursor is None:
            return Span(self.position, END)
        last_at = page.timers[-1].next_attempt_at if page.timers else None
        return Span(self.position, Position(page.cursor_at or last_at or self.position.at, page.cursor))


@dataclass(frozen=True, slots=True)
class Offered:
    """What became of a page: how many of its timers were taken, and the queues that had no room for theirs."""

    accepted: int = 0
    refused: set[QueueKey] = field(default_factory=set)


@dataclass(slots=True, kw_only=True)
class ShardReading:
    """How far a shard has been read, and when to go on. For the event loop's thread alone.

    ``..._at`` are monotonic seconds: when that reading has its next page. ``tail`` and ``survey`` say where that is,
    between two passes not at all; ``survey_seconds``: what this one has taken so far. ``left``: from where to where
    each queue was left, in the order of their turns.

    The tail covers what becomes due after ``read_until``. Every ``interval_seconds``, while a survey is in flight or
    a queue is left, it looks back a little, though not before ``tail_begun``. ``known_next`` is the earliest due time
    after the last read, as far as is known; ``hinted`` the earliest that was noted while a read was in flight.
    ``given_up``: queues of which a timer was given up while a read was in flight; its page may not have it.
    ``failing_seconds``: from the first of the last reads, at ``failing_since``, to the last one, if all of them
    failed; ``has_read``: whether any has not.
    """

    shard_id: int
    interval_seconds: float
    survey_at: float
    tail_at: float = inf
    look_back_at: float = inf
    catch_up_at: float = -inf
    tail: Position | None = None
    survey: Position | None = None
    survey_seconds: float = 0.0
    left: dict[QueueKey, Span] = field(default_factory=dict)
    read_until: datetime = MIN_INSTANT
    tail_begun: datetime = MIN_INSTANT
    known_next: datetime | None = None
    hinted: datetime | None = None
    is_polling: bool = False
    given_up: set[QueueKey] = field(default_factory=set)
    errors: int = 0
    failing_since: float = inf
    failing_seconds: float = 0.0
    has_read: bool = False

    @property
    def has_backlog(self) -> bool:
        """Whether there is more due than may be started."""
        return bool(self.left)

    def may_take(self, key: QueueKey, page: Span) -> bool:
        """Tell whether a queue may have timers of a page: the older ones that were left come first."""
        left = self.left.get(key)
        return left is None or left.begin >= page.begin

    def leave(self, key: QueueKey, page: Span) -> None:
        """Leave a queue: a timer of it is on a page and was not taken, or was given up."""
        if self.is_polling:
            self.given_up.add(key)
        left = self.left.get(key, page)
        self.left[key] = Span(min(left.begin, page.begin), max(left.end, page.end))

    def note_due(self, at: datetime, monotonic: float) -> None:
        """Be awake when a timer of this shard will be due: at ``at``, which comes at ``monotonic``."""
        self.read_until = min(self.read_until, at)
        if self.is_polling or self.tail is not None:
            self.hinted = at if self.hinted is None else min(self.hinted, at)
        self.known_next = at if self.known_next is None else min(self.known_next, at)
        self.tail_at = min(self.tail_at, monotonic)

    # -- what comes next -------------------------------------------------------------------------------------

    def plan(
        self,
        until: datetime,
        monotonic: float,
        wants: Callable[[QueueKey, float], bool],
        is_full: Callable[[str], bool],
    ) -> tuple[PageRequest | None, float]:
        """Return what to read now, or else when to ask again.

        ``wants`` tells whether a queue needs more timers, ``is_full``, from any thread, whether a namespace would
        take none in whichever queue.
        """
        if self.tail_at <= monotonic:
            if self.tail is None:
                self.tail = self._tail_start(until, monotonic)
            return self._request(Reading.TAIL, self.tail, until, is_full), monotonic
        if self.left and self.catch_up_at <= monotonic:
            key = self._next_queue(monotonic, wants)
            if key is not None:
                return self._request(Reading.CATCH_UP, self.left[key].begin, until, is_full), monotonic
        if self.survey_at <= monotonic:
            if self.survey is None:
                self.survey, self.survey_seconds = START, 0.0
            return self._request(Reading.SURVEY, self.survey, until, is_full), monotonic
        pause = max(_ASK_AGAIN_SECONDS, self.interval_seconds * _ASK_AGAIN_INTERVALS)
        ask_at = self.catch_up_at if self.catch_up_at > monotonic else monotonic + pause
        return None, min(self.tail_at, self.survey_at, ask_at if self.left else inf)

    def _request(
        self, reading: Reading, position: Position, until: datetime, is_full: Callable[[str], bool]
    ) -> PageRequest:
        known_next = self.known_next if self.known_next is not None and self.known_next > until else None
        return PageRequest(
            self.shard_id, reading, position, until, Unwanted(self.left, position, is_full), known_next
        )

    def _tail_start(self, until: datetime, monotonic: float) -> Position:
        start, self.hinted = self.read_until, None
        if self.look_back_at <= monotonic:
            self.look_back_at = monotonic + self.interval_seconds
            start = min(start, max(self.tail_begun, start - _LOOK_BACK))
        return Position(min(start, until))  # the clock may have been set back

    def _next_queue(self, monotonic: float, wants: Callable[[QueueKey, float], bool]) -> QueueKey | None:
        """Return the first that wants more, of a bounded number that is asked. Those that do not go to the end."""
        for key in list(islice(self.left, _MAX_QUEUES_ASKED)):
            if wants(key, monotonic):
                return key
            self.left[key] = self.left.pop(key)
        return None

    # -- what has been read ----------------------------------------------------------------------------------

    def finish(
        self,
        request: PageRequest,
        page: DuePage,
        offered: Offered,
        *,
        busy_seconds: float,
        monotonic: float,
        monotonic_at: Callable[[datetime], float],
        settings: EngineSettings,
    ) -> None:
        """Take in a page. ``busy_seconds``: what one of each shard with a backlog takes, as far as is known.

        ``monotonic_at``: ``StoreClock``'s.
        """
        self.errors, self.has_read = 0, True
        self.failing_since, self.failing_seconds = inf, 0.0
        span = request.span_of(page)
        had_backlog = self.has_backlog
        has_moved = self._move_queues(span, offered.refused | request.unwanted.met | self.given_up)
        self.given_up.clear()
        if page.timers or page.known:
            self.interval_seconds = settings.min_poll_interval_seconds
        elif request.reading is Reading.SURVEY:
            self.interval_seconds = min(self.interval_seconds * 2, settings.poll_interval_seconds)
        if request.reading is Reading.CATCH_UP:
            is_stuck = not (offered.accepted or has_moved)
            self._finish_catch_up(busy_seconds, monotonic, has_accepted=bool(offered.accepted), is_stuck=is_stuck)
        elif request.reading is Reading.SURVEY:
            self._finish_survey(
                span, request.until, busy_seconds=busy_seconds, monotonic=monotonic, settings=settings
            )
        else:
            self._finish_tail(span, request.until)
        if had_backlog and not self.left:
            self.survey_at = min(self.survey_at, monotonic)
        if (self.left or self.survey is not None) and self.look_back_at == inf:
            self.tail_begun = request.until
            self.look_back_at = monotonic + self.interval_seconds
            self.tail_at = min(self.tail_at, self.look_back_at)
        if span.end == END:
            hinted, self.hinted = self.hinted, None
            for at in (page.next_attempt_at, hinted):
                if at is not None:
                    self.note_due(at, monotonic_at(at))

    def _move_queues(self, page: Span, refused: set[QueueKey]) -> bool:
        """Queues that were left on this page go on behind it, but for the refused. Whether any did.

        All of them have had their turn: the next one is behind those of the others.
        """
        reached = [
            key for key, left in self.left.items() if left.begin == page.begin or page.begin < left.begin < page.end
        ]
        for key in reached:
            left = self.left.pop(key)
            if left.end > page.end:
                self.left[key] = Span(page.end, left.end)
        for key in refused:
            self.leave(key, page)
        return not refused.issuperset(reached)

    def _finish_catch_up(self, busy_seconds: float, monotonic: float, *, has_accepted: bool, is_stuck: bool) -> None:
        rest = busy_seconds * (_CATCH_UP_REST if self.survey is None else _CATCH_UP_REST_IN_SURVEY)
        if not has_accepted:
            rest = max(rest, busy_seconds, _REST_WHEN_STUCK_SECONDS if is_stuck else _SHORTEST_REST_SECONDS)
        self.catch_up_at = monotonic + rest

    def _finish_survey(
        self, page: Span, until: datetime, *, busy_seconds: float, monotonic: float, settings: EngineSettings
    ) -> None:
        is_last = page.end == END
        self.survey = None if is_last else page.end
        if self.look_back_at == inf:  # it began just now: what becomes due from now on is left to the tail
            self.read_until = until if self.hinted is None else min(until, self.hinted)
        self.survey_seconds += busy_seconds
        if not is_last:
            self.survey_at = monotonic
        elif self.left:
            rest = max(_SURVEY_INTERVAL_SECONDS, settings.poll_interval_seconds, _SURVEY_REST * self.survey_seconds)
            self.survey_at = monotonic + rest
        else:  # all that is due was seen and taken: the tail has nothing to look for
            self.survey_at = monotonic + self.interval_seconds
            self.tail, self.tail_at, self.look_back_at = None, inf, inf
            self.read_until, self.known_next = until, None

    def _finish_tail(self, page: Span, until: datetime) -> None:
        is_last = page.end == END
        self.tail = None if is_last else page.end
        if is_last:
            self.read_until, self.known_next = until, None
            self.tail_at = self.look_back_at

    def fail(self, *, monotonic: float, random: float) -> None:
        """Back off after a failed read, and go on from there."""
        self.errors += 1
        self.failing_since = min(self.failing_since, monotonic)
        self.failing_seconds = monotonic - self.failing_since
        self.known_next = None
        at = monotonic + backoff_after(self.errors, random)
        self.tail_at, self.catch_up_at = max(self.tail_at, at), max(self.catch_up_at, at)
        self.survey_at = max(self.survey_at, at)

    def look_again(self, monotonic: float) -> None:
        """Look at once: what was left may have room by now, and what was never read may be due."""
        self.catch_up_at, self.survey_at = min(self.catch_up_at, monotonic), min(self.survey_at, monotonic)

    def retry(self, monotonic: float) -> None:
        """Go on: the store answers again, and what waits since a read failed waits no longer."""
        self.failing_since, self.failing_seconds = inf, 0.0
        if self.errors:
            self.look_again(monotonic)
            if self.tail_at < inf:
                self.tail_at = min(self.tail_at, monotonic)
