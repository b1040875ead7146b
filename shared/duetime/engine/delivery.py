"""How timers are delivered: one ``Attempt`` for each timer that a poller has taken, and a strategy for each kind."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum, auto
from typing import Protocol

from duetime.delivery.port import Callback, CallbackResult
from duetime.domain.outcomes import Outcome
from duetime.domain.retry import DEFAULT_RETRY_POLICY, RetryPolicy
from duetime.domain.shards import Lease
from duetime.domain.timers import Timer
from duetime.engine.keys import QueueKey
from duetime.engine.shards.reading import Span
from duetime.engine.shards.shard import ShardState


class AttemptState(Enum):
    TAKEN = auto()
    """It waits for its turn, or for what must be stored or decided before it is sent."""
    SENT = auto()
    PARKING = auto()
    """Sent, and the write that parks it is not done. A response waits for that write."""
    PARKED = auto()
    """Sent, and not to be parked any more: it is, or the store refuses it."""
    SUPERSEDED = auto()
    """Sent, and its timer was changed meanwhile: its response is of no use."""


@dataclass(slots=True, eq=False)
class Attempt:
    """A timer from when it is taken until what came of it is stored. Touched by the event loop only.

    ``timer`` is the revision that its outcome applies to, and ``page`` where it was read. ``number`` is the key of
    its callback. ``read_at`` and ``started`` are monotonic seconds. ``lease`` is that of its start.
    ``holds_shard``: its shard is not to be released. ``has_place``: it is counted by flow control.
    ``result`` is kept while the attempt is PARKING. ``default_policy`` is its namespace's as it began, for timers
    without a policy of their own. ``token`` is what the handler of an execution wants back with its response.
    """

    delivery: Delivery
    shard: ShardState
    timer: Timer
    queue: QueueKey
    page: Span
    number: int
    read_at: float
    state: AttemptState = AttemptState.TAKEN
    holds_shard: bool = True
    has_place: bool = False
    lease: Lease = field(init=False)
    fired_at: datetime = field(init=False)
    started: float = field(init=False)
    is_slow: bool = False
    default_policy: RetryPolicy = DEFAULT_RETRY_POLICY
    result: CallbackResult | None = None
    token: object | None = None

    def __post_init__(self) -> None:
        self.lease = self.shard.lease

    @property
    def lag_seconds(self) -> float:
        """Of a first attempt. A timer that was stored with a time in the past is due from then on."""
        timer = self.timer
        return (self.fired_at - max(timer.armed_at, timer.updated_at)).total_seconds()


class Launcher(Protocol):
    """What a strategy tells the poller's firing."""

    def send(self, decided: Sequence[tuple[Attempt, Callback | None]]) -> None:
        """Send the callbacks of attempts that ``Delivery.start`` has not answered at once.

        None: nothing is sent for it, and its place is free.
        """
        ...

    def start_attempts(self) -> None:
        """Start attempts for which there may be room now."""
        ...


class Delivery(ABC):
    """Delivers the timers of one kind. Everything here is called in the event loop's thread and returns at once."""

    @property
    def starting(self) -> int:
        """Attempts that were started and are not sent yet."""
        return 0

    @property
    def unstored(self) -> int:
        """Results that are not stored yet and that no outcome stands for."""
        return 0

    @property
    def is_idle(self) -> bool:
        """False while there is something to decide, to store or to tell."""
        return not (self.starting or self.unstored)

    def takes(self, namespace: str) -> bool:
        """Tell whether the timers of ``namespace`` are of this kind, and of no other."""
        return False

    @abstractmethod
    def start(self, attempt: Attempt, now: datetime) -> Callback | None:
        """Begin the turn of ``attempt``: the callback to send, or None: ``Launcher.send`` will be told later."""

    @abstractmethod
    def finish(self, attempt: Attempt, result: CallbackResult, now: datetime) -> None:
        """Take the end of the callback of ``attempt``."""

    def skips_queue(self, shard: ShardState, timer: Timer, page: Span, *, now: datetime) -> bool:
        """Tell whether a due timer needs no turn in a queue. Takes it, if there is something to do about it.

        Asked while there is room for what is to be recorded.
        """
        return False

    def has_room(self, namespace: str) -> bool:
        """Tell whether one more of ``namespace`` should start."""
        return True

    def park(self, attempt: Attempt) -> None:
        """Park a long ``attempt``: its timer is not to be fired again while it lasts, nor right after a crash."""

    def abandon(self, attempt: Attempt) -> None:
        """Give ``attempt`` up: no response to it will be taken."""

    def to_record(self, attempt: Attempt, outcome: Outcome) -> Outcome:
        """Return what is recorded when ``outcome`` is what ``attempt``, or the turn of its timer, has led to."""
        return outcome

    def recorded(self, outcome: Outcome) -> None:
        """Hear that ``outcome`` was recorded, or that something else was there in its place."""

    def begin(self, ends_at: float | None) -> None:
        """Begin a run. ``ends_at``: the monotonic time at which what is in flight will be given up, if known."""

    def stop_starting(self) -> None:
        """Start nothing more, and store what there is without waiting for company: the run is about to end."""

    def retry(self) -> None:
        """Go on after an outage: the store answers again."""

    async def run(self) -> None:
        """Work until cancelled."""
        await asyncio.Event().wait()
