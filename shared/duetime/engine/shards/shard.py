"""One owned shard as the poller sees it: its lease, how it is read, and what of it is in flight."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from duetime.domain.shards import Lease
from duetime.domain.timers import Timer
from duetime.engine.keys import FiringKey, QueueKey, firing_key
from duetime.engine.payloads import HeldPayloads
from duetime.engine.shards.reading import ShardReading, Span


@dataclass(slots=True)
class ShardState:
    """Touched by the event loop only. ``trusted_until`` is monotonic seconds.

    ``unrecorded`` holds the attempts read and not yet recorded, with the page that each was on: they are still in the
    due index and must not be taken up again. An attempt recorded while a read is in flight may yet appear in that
    read's page; ``settled`` holds it until the page has been looked at. ``parked`` holds the parked attempts still
    in flight: their rows come due again only if no response could be recorded. ``payloads``: those of all shards of
    the poller.
    """

    lease: Lease
    trusted_until: float
    reading: ShardReading
    is_releasing: bool = False
    unrecorded: dict[FiringKey, Span] = field(default_factory=dict)
    settled: set[FiringKey] = field(default_factory=set)
    parked: set[FiringKey] = field(default_factory=set)
    payloads: HeldPayloads = field(default_factory=HeldPayloads)

    @property
    def shard_id(self) -> int:
        return self.lease.shard_id

    @property
    def is_polling(self) -> bool:
        """Whether a read is in flight."""
        return self.reading.is_polling

    def is_trusted(self, monotonic: float) -> bool:
        return monotonic < self.trusted_until

    def is_new(self, timer: Timer) -> bool:
        """False for a timer that is in flight, or whose recorded attempt may still show in the page at hand."""
        key = firing_key(timer)
        return key not in self.unrecorded and key not in self.settled and key not in self.parked

    def take(self, timer: Timer, page: Span) -> None:
        """The timer, found on ``page``, counts as in flight from now on."""
        self.unrecorded[firing_key(timer)] = page
        self.payloads.add(timer)

    def give_up(self, key: QueueKey, timer: Timer) -> None:
        """A timer of this queue that was taken is not fired after all, and has to be read again."""
        firing = firing_key(timer)
        self.reading.leave(key, self.unrecorded.pop(firing))
        self.payloads.remove(firing)

    def park(self, before: FiringKey, timer: Timer) -> None:
        """The attempt ``before``, still in flight, has been parked as ``timer``."""
        self.settle(before)
        self.parked.add(firing_key(timer))
        self.payloads.add(timer)

    def settle(self, key: FiringKey) -> None:
        """The attempt is recorded, or forgotten: its row has left the due index, or is due for real."""
        self.unrecorded.pop(key, None)
        self.parked.discard(key)
        self.payloads.remove(key)
        if self.is_polling:
            self.settled.add(key)

    def note_due(self, at: datetime, *, now: datetime, monotonic: float) -> None:
        """A timer of this shard will be due at ``at``: be awake then."""
        self.reading.note_due(at, now=now, monotonic=monotonic)

    def end_poll(self) -> None:
        """The page has been looked at, or there is none."""
        self.reading.is_polling = False
        self.settled.clear()
