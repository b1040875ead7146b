"""One owned shard as the poller sees it: its lease, how far it has been read, and what is not yet recorded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from duetime.domain.shards import Lease
from duetime.domain.timers import Timer
from duetime.domain.times import MIN_INSTANT
from duetime.engine.backlog import Backlog, Reading
from duetime.engine.keys import FiringKey, LaneKey, firing_key
from duetime.engine.payloads import HeldPayloads
from duetime.engine.settings import EngineSettings
from duetime.stores.port import DuePage


@dataclass(frozen=True, slots=True)
class PageRequest:
    """What ``Store.due_timers`` is asked for."""

    shard_id: int
    reading: Reading
    cursor: str | None
    since: datetime | None = None
    known_next: datetime | None = None


@dataclass(frozen=True, slots=True)
class Offered:
    """What became of a page: how many of its timers were taken, and which lanes had no room for theirs.

    ``refused`` has the index key of the first such timer of each lane.
    """

    accepted: int = 0
    refused: Mapping[LaneKey, datetime] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReadCost:
    """The seconds that a page took, and how many shards have a backlog: they share the threads that read."""

    seconds: float = 0.0
    backlogged: int = 1


@dataclass(slots=True)
class OwnedShard:
    """Touched by the event loop only.

    ``trusted_until`` and ``poll_at`` are monotonic seconds. ``known_next`` is the earliest due time after the last
    read, as far as is known; ``noted_next`` what was noted while a read was under way.

    ``unrecorded`` holds the attempts read and not yet recorded: they are still in the due index and must not be
    taken up again. An attempt recorded while a read is under way may yet appear in that read's page; ``settled``
    holds it until the page has been looked at. ``parked`` holds the parked attempts still under way: their rows
    come due again only if no answer could be recorded.

    News are read in two ways. A *full* read, every ``interval_seconds``, finds all that is due. Between those, when a
    timer is known to become due, what became due after ``read_until`` is enough: so the timers that are under way
    or wait are not read over and over.

    ``backlog`` is set while there is more due than may be started. ``payloads``: those of all shards of the poller.
    """

    lease: Lease
    trusted_until: float
    poll_at: float
    interval_seconds: float
    cursor: str | None = None
    is_polling: bool = False
    is_releasing: bool = False
    errors: int = 0
    known_next: datetime | None = None
    noted_next: datetime | None = None
    unrecorded: set[FiringKey] = field(default_factory=set)
    settled: set[FiringKey] = field(default_factory=set)
    parked: set[FiringKey] = field(default_factory=set)
    backlog: Backlog | None = None
    payloads: HeldPayloads = field(default_factory=HeldPayloads)
    read_until: datetime | None = None
    full_read_at: float = float("-inf")
    is_full_pass: bool = True

    @property
    def shard_id(self) -> int:
        return self.lease.shard_id

    def is_trusted(self, monotonic: float) -> bool:
        return monotonic < self.trusted_until

    def known_next_after(self, until: datetime) -> datetime | None:
        """What is known of the time after ``until``."""
        return self.known_next if self.known_next is not None and self.known_next > until else None

    def is_new(self, timer: Timer) -> bool:
        """False for a timer that is under way, or whose recorded attempt may still show in the page at hand."""
        key = firing_key(timer)
        return key not in self.unrecorded and key not in self.settled and key not in self.parked

    def take(self, timer: Timer) -> None:
        """The timer counts as under way from now on."""
        self.unrecorded.add(firing_key(timer))
        self.payloads.add(timer)

    def park(self, before: FiringKey, timer: Timer) -> None:
        """The attempt ``before``, still under way, has been parked as ``timer``."""
        self.settle(before)
        self.parked.add(firing_key(timer))
        self.payloads.add(timer)

    def settle(self, key: FiringKey) -> None:
        """The attempt is recorded (or given up): its row has left the due index, or is due for real."""
        self.unrecorded.discard(key)
        self.parked.discard(key)
        self.payloads.remove(key)
        if self.is_polling:
            self.settled.add(key)

    def note_due(self, at: datetime, *, now: datetime, monotonic: float) -> None:
        """A timer of this shard will be due at ``at``: be awake then."""
        if self.read_until is not None and at < self.read_until:
            self.read_until = at
        if self.is_polling and (self.noted_next is None or at < self.noted_next):
            self.noted_next = at
        if self.known_next is None or at < self.known_next:
            self.known_next = at
        self.poll_at = min(self.poll_at, monotonic + max(0.0, (at - now).total_seconds()))

    # -- reading ---------------------------------------------------------------------------------------------

    def plan(self, monotonic: float, wants: Callable[[LaneKey, float], bool]) -> tuple[Reading | None, float]:
        """What to read now, or else when to ask again. ``wants`` tells whether a lane needs more timers."""
        if self.poll_at <= monotonic:
            return Reading.NEWS, monotonic
        if self.backlog is None:
            return None, self.poll_at
        reading, at = self.backlog.plan(monotonic, wants)
        if self.backlog.is_over:
            self._end_backlog(monotonic)
            return Reading.NEWS, monotonic
        return reading, min(at, self.poll_at)

    def read_to(self, reading: Reading) -> datetime:
        """How far what is due has been swept; the beginning for news, which nobody else reads."""
        if reading is Reading.NEWS or self.backlog is None or self.backlog.swept_to is None:
            return MIN_INSTANT
        return self.backlog.swept_to

    def page_request(self, reading: Reading, until: datetime, monotonic: float) -> PageRequest:
        if reading is not Reading.NEWS:
            assert self.backlog is not None
            return PageRequest(self.shard_id, reading, self.backlog.cursor(reading))
        if self.cursor is None:
            self.is_full_pass = monotonic >= self.full_read_at
        since = self.read_until
        if self.is_full_pass:
            since = None if self.backlog is None else self.backlog.news_since(self.read_until)
        if since is not None and since > until:  # the clock was set back
            since = until
        return PageRequest(self.shard_id, reading, self.cursor, since, self.known_next_after(until))

    def defer(self, key: LaneKey, timer: Timer, *, monotonic: float) -> None:
        """A timer of this lane was read and has to be read again."""
        if self.backlog is None:
            self.poll_at = self.full_read_at = min(self.poll_at, monotonic)
        else:
            assert timer.next_attempt_at is not None
            self.backlog.defer(key, timer.next_attempt_at)
            if self.is_polling:  # the page that is being read passes it over, as it was under way until now
                self.backlog.lap_deferred[key] = None

    def pass_over(self) -> None:
        """The read did not take place: others had too much. It will be among the first of the next one."""
        self.is_polling = False
        self.settled.clear()

    def finish_poll(
        self,
        request: PageRequest,
        page: DuePage,
        *,
        until: datetime,
        offered: Offered,
        cost: ReadCost,
        now: datetime,
        monotonic: float,
        settings: EngineSettings,
    ) -> None:
        """Plan the next read after ``page``, which was due ``until``."""
        self.is_polling = False
        self.errors = 0
        self.settled.clear()
        is_new_backlog = self.backlog is None and bool(offered.refused)
        if is_new_backlog:
            self.backlog = Backlog(
                begun=until,
                deferred={},
                sweep_cursor=request.cursor,
                discovery_cursor=page.cursor,
                sweep_at=monotonic,
                discovery_at=monotonic,
            )
        if self.backlog is not None:
            self._finish_in_backlog(self.backlog, request, page, offered=offered, cost=cost, monotonic=monotonic)
        if request.reading is Reading.NEWS:
            # What lies between this page and the beginning of a new backlog is left to the other readings.
            cursor = None if is_new_backlog else page.cursor
            self._finish_news(page, cursor=cursor, until=until, now=now, monotonic=monotonic, settings=settings)

    def _finish_in_backlog(
        self,
        backlog: Backlog,
        request: PageRequest,
        page: DuePage,
        *,
        offered: Offered,
        cost: ReadCost,
        monotonic: float,
    ) -> None:
        if request.reading is Reading.SWEEP:
            backlog.finish_sweep(
                page.cursor,
                last_at=page.timers[-1].next_attempt_at if page.timers else None,
                refused=offered.refused,
                accepted=offered.accepted,
                duration=cost.seconds,
                monotonic=monotonic,
            )
            if backlog.is_over:
                self._end_backlog(monotonic)
            return
        for key, at in offered.refused.items():
            backlog.defer(key, at)
        if request.reading is Reading.DISCOVERY:
            backlog.finish_discovery(page.cursor, busy_seconds=cost.seconds * cost.backlogged, monotonic=monotonic)

    def _end_backlog(self, monotonic: float) -> None:
        self.backlog = None
        self.cursor = None
        self.poll_at = self.full_read_at = monotonic

    def _finish_news(
        self,
        page: DuePage,
        *,
        cursor: str | None,
        until: datetime,
        now: datetime,
        monotonic: float,
        settings: EngineSettings,
    ) -> None:
        self.cursor = cursor
        noted_next, self.noted_next = self.noted_next, None
        if page.timers:
            self.interval_seconds = settings.min_poll_interval_seconds
        elif self.is_full_pass:
            self.interval_seconds = min(self.interval_seconds * 2, settings.poll_interval_seconds)
        if cursor is not None:  # there is more
            self.poll_at = monotonic
            return
        self.read_until = until
        if self.is_full_pass:
            self.full_read_at = monotonic + self.interval_seconds
        self.poll_at = self.full_read_at = min(self.full_read_at, monotonic + self.interval_seconds)
        self.known_next = None
        for at in (page.next_attempt_at, noted_next):
            if at is not None:
                self.note_due(at, now=now, monotonic=monotonic)

    def fail_poll(self, *, monotonic: float, random: float, settings: EngineSettings) -> None:
        """A read failed: back off, and begin again from the start of what is due."""
        self.is_polling = False
        self.errors += 1
        self.settled.clear()
        self.cursor = None
        self.known_next = None
        self.noted_next = None
        self.poll_at = self.full_read_at = monotonic + settings.backoff_after(self.errors, random)
        if self.backlog is not None:
            self.backlog.sweep_at = self.backlog.discovery_at = self.poll_at
