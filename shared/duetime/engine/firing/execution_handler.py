"""The hook of at-most-once delivery: who stores what before and after a request is sent.

For a plain timer the callback comes first and what came of it is recorded afterwards. Whoever needs another order,
or stores more than a timer, implements ``ExecutionHandler``: the engine still reads what is due, gives every timer
its turn (flow control, leases, rates), sends and counts; what a turn means, and what is stored before and after, is
the handler's.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from duetime.delivery.port import Callback, CallbackResult
from duetime.domain.hot_dataclass import hot_dataclass
from duetime.domain.service_calls import CallStatus
from duetime.domain.shards import Lease
from duetime.domain.timers import Timer


@hot_dataclass(frozen=True, slots=True)
class Turn:
    """The turn of a due timer, taken under ``lease``.

    ``attempt_id`` is a new id, a UUIDv7, for whatever begins with it. When ``begin`` is repeated after a store error
    the id is the same, so the handler can tell that an earlier try was stored after all. Nothing has been sent then.
    """

    timer: Timer
    lease: Lease
    attempt_id: str


class StartStatus(StrEnum):
    BEGUN = "begun"
    """``message`` is to be sent."""
    WAITS = "waits"
    """There is nothing to send, or nothing yet."""
    SUPERSEDED = "superseded"
    """The timer was changed after it was read: whatever it is now, it has to be read again."""
    LEASE_LOST = "lease_lost"
    """The shard has another owner now: nothing was stored."""
    GONE = "gone"
    """What the timer stands for no longer exists: the timer ends, silently."""
    UNREADABLE = "unreadable"
    """What the timer stands for cannot be read: the timer fails, and people are told."""
    UNAVAILABLE = "unavailable"
    """The store cannot take this for now, unlike other turns: nothing was sent, and ``begin`` is asked again."""


@hot_dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """``callback`` is sent, with a key of the engine's. ``token`` comes back with its response.

    A response after ``respond_by`` could come too late to be taken. So when beginning took long, the callback gets
    less than its timeout; and when there is next to nothing left, it is not sent.
    """

    callback: Callback
    token: object
    respond_by: datetime


@hot_dataclass(frozen=True, slots=True, kw_only=True)
class StartResult:
    """``message`` is set exactly with BEGUN. ``wake_at``: when the timer is due next, as stored.

    ``ended_as``, ``is_timed_out``: for those who count: this turn ended a service call, or an execution that was past
    its deadline.
    """

    status: StartStatus
    message: Message | None = None
    wake_at: datetime | None = None
    ended_as: CallStatus | None = None
    is_timed_out: bool = False


@hot_dataclass(frozen=True, slots=True)
class ExecutionResponse:
    """What came of a message of this handler: a response, or why there is none."""

    token: object
    result: CallbackResult


@hot_dataclass(frozen=True, slots=True, kw_only=True)
class Conclusion:
    """``wake_at``: when the timer is due next; None: not any more, or not by this. ``ended_as`` as in a turn.

    ``is_put_off``: the store cannot take this response for now, unlike others, and ``conclude`` is asked again.
    """

    wake_at: datetime | None = None
    ended_as: CallStatus | None = None
    is_put_off: bool = False


class ExecutionHandler(Protocol):
    """Called in threads, with batches, and from several threads at once.

    While the store cannot be used (``StoreUnavailable``, ``StoreNotReady``) ``begin`` and ``conclude`` are called
    again with the same batch. After any other error they are called with parts of it, until what caused the error is
    alone: such a turn is tried again later, such a response is lost and the watchdog ends its execution.

    ``begin`` stores that something is about to be sent before it is sent, and moves the timer's due time to when
    somebody has to look after it should no response come. So the engine parks no timer of a handler, and a process
    that dies leaves nothing behind that only it could end.
    """

    def takes(self, namespace: str) -> bool:
        """Tell whether the timers of ``namespace`` are this handler's. In the event loop's thread: must be quick."""
        ...

    def begin(self, turns: Sequence[Turn], *, now: datetime) -> list[StartResult]:
        """Return one result per turn; a parked timer's is not BEGUN, since it had its turn without regard to limits.

        After it has raised it is called again with some or all of the turns. Some may be stored already.
        """
        ...

    def conclude(self, responses: Sequence[ExecutionResponse], *, now: datetime) -> list[Conclusion]:
        """Return one conclusion per response. After it has raised it is called again with some or all of the
        responses, some of which may have been stored."""
        ...
