"""One owned shard as the poller sees it: its lease, how far it has been read, and what is not yet recorded."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from duetime.domain.shards import Lease
from duetime.domain.timers import Timer
from duetime.engine.settings import EngineSettings
from duetime.stores.port import DuePage

FiringKey = tuple[str, int]
"""(firing_id, revision): one attempt of one firing."""


def firing_key(timer: Timer) -> FiringKey:
    return timer.firing_id, timer.revision


@dataclass(slots=True)
class OwnedShard:
    """Touched by the event loop only.

    ``trusted_until`` and ``poll_at`` are monotonic seconds. ``known_next`` is the earliest due time after the last
    read, as far as is known; ``noted_next`` what was noted while a read was under way.

    ``unrecorded`` holds the attempts read and not yet recorded: they are still in the due index and must not be
    taken up again. An attempt recorded while a read is under way may yet appear in that read's page; ``settled``
    holds it until the page has been looked at. ``parked`` holds the parked attempts still under way: their rows
    come due again only if no answer could be recorded.
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

    @property
    def shard_id(self) -> int:
        return self.lease.shard_id

    def is_trusted(self, monotonic: float) -> bool:
        return monotonic < self.trusted_until

    def known_next_after(self, until: datetime) -> datetime | None:
        """What is known of the time after ``until``."""
        return self.known_next if self.known_next is not None and self.known_next > until else None

    def take_new(self, timers: list[Timer]) -> list[Timer]:
        """The timers that are not under way yet; they count as under way from now on."""
        new = []
        for timer in timers:
            key = firing_key(timer)
            if key not in self.unrecorded and key not in self.settled and key not in self.parked:
                self.unrecorded.add(key)
                new.append(timer)
        return new

    def settle(self, key: FiringKey) -> None:
        """The attempt is recorded (or given up): its row has left the due index, or is due for real."""
        self.unrecorded.discard(key)
        self.parked.discard(key)
        if self.is_polling:
            self.settled.add(key)

    def note_due(self, at: datetime, *, now: datetime, monotonic: float) -> None:
        """A timer of this shard will be due at ``at``: be awake then."""
        if self.is_polling and (self.noted_next is None or at < self.noted_next):
            self.noted_next = at
        if self.known_next is None or at < self.known_next:
            self.known_next = at
        self.poll_at = min(self.poll_at, monotonic + max(0.0, (at - now).total_seconds()))

    def finish_poll(self, page: DuePage, *, now: datetime, monotonic: float, settings: EngineSettings) -> None:
        """Plan the next read after ``page``."""
        self.is_polling = False
        self.errors = 0
        self.settled.clear()
        self.cursor = page.cursor
        noted_next, self.noted_next = self.noted_next, None
        if page.timers:
            self.interval_seconds = settings.min_poll_interval_seconds
        else:
            self.interval_seconds = min(self.interval_seconds * 2, settings.poll_interval_seconds)
        if self.cursor is not None:  # there is more
            self.poll_at = monotonic
            return
        self.poll_at = monotonic + self.interval_seconds
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
        self.poll_at = monotonic + settings.backoff_after(self.errors, random)
