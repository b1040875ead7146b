"""The reading of one shard, by hand."""

from __future__ import annotations

from datetime import datetime, timedelta

from duetime.domain.timers import Timer
from duetime.engine.keys import QueueKey
from duetime.engine.settings import EngineSettings
from duetime.engine.shards.reading import Offered, PageRequest, ShardReading
from duetime.stores.port.timers import DuePage
from tests.support.clock import NOW
from tests.support.engine import make_timer

SETTINGS = EngineSettings(poll_interval_seconds=0.8, min_poll_interval_seconds=0.1)
A, B = ("a", "http://receiver.test"), ("b", "http://receiver.test")
MS = timedelta(milliseconds=1)


def everyone(key: QueueKey, monotonic: float) -> bool:
    del key, monotonic
    return True


def nobody(key: QueueKey, monotonic: float) -> bool:
    return not everyone(key, monotonic)


def has_room(namespace: str) -> bool:
    return not namespace


def of(namespace: str, *, at: datetime = NOW) -> Timer:
    return make_timer("t", namespace=namespace, execute_at=at)


def monotonic_at(instant: datetime) -> float:
    return (instant - NOW).total_seconds()


class Subject:
    """A shard whose clock is set by hand: ``monotonic`` seconds after ``NOW``."""

    def __init__(self) -> None:
        self.reading = ShardReading(shard_id=0, interval_seconds=0.1, survey_at=0.0)
        self.monotonic = 0.0

    @property
    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.monotonic)

    def wait(self, *, asks: bool = True) -> float:
        """Until when nothing is to be read. ``asks``: whether queues want more."""
        request, at = self.reading.plan(self.now, self.monotonic, everyone if asks else nobody, has_room)
        assert request is None
        return at

    def next(self, *, asks: bool = True) -> PageRequest:
        """The read that is due now."""
        request, _ = self.reading.plan(self.now, self.monotonic, everyone if asks else nobody, has_room)
        assert request is not None
        return request

    def read(
        self,
        *timers: Timer,
        cursor: str | None = None,
        following: datetime | None = None,
        refused: tuple[QueueKey, ...] = (),
        accepted: int = 0,
        busy_seconds: float = 0.0,
        asks: bool = True,
    ) -> PageRequest:
        """Carry out the read that is due now: it finds ``timers``, and after them ``cursor`` or ``following``.

        It takes ``busy_seconds``.
        """
        request = self.next(asks=asks)
        self.monotonic += busy_seconds
        self.reading.finish(
            request,
            DuePage(list(timers), cursor=cursor, next_attempt_at=following),
            Offered(accepted, set(refused)),
            busy_seconds=busy_seconds,
            monotonic=self.monotonic,
            monotonic_at=monotonic_at,
            settings=SETTINGS,
        )
        return request

    def note_due(self, at: datetime) -> None:
        self.reading.note_due(at, monotonic_at(at))

    def at(self, monotonic: float) -> Subject:
        self.monotonic = monotonic
        return self
