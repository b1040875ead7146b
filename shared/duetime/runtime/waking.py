"""Who wakes the pollers on Lambda when they sleep (decision 0037). ``sleeping`` has how they fall asleep.

The *sleep epoch* is a number in the store that only grows: even while the pollers sleep, odd while somebody sees to
it that each shard has one. Who stores a timer that is due soon reads it after that write, and invokes the poller's
function if it is even. Pollers make it even first, and look at what is due after that. So one of both sees the other.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final, Protocol

from duetime.domain.clock import Clock
from duetime.domain.errors import DuetimeError, StoreError
from duetime.domain.timers import Timer

WAKE_EVENT: Final[dict[str, Any]] = {"wake": True}
AHEAD_SECONDS: Final = 180.0
"""A timer that is due later need not wake anybody: the watchdog looks every minute, two minutes ahead, and finds it
even if one of its starts is lost."""
TRUST_SECONDS: Final = 30.0
"""For so long a writer that has seen the pollers awake need not look again; they do not end before."""
_INVOKED_SECONDS = 3.0
"""For so long a writer that has invoked the function need not do it again: a cold start, and some."""

Invoke = Callable[[str, dict[str, Any]], None]
"""Invoke the function of this name or ARN asynchronously with this event. Raises ``FanOutFailed``."""

logger = logging.getLogger(__name__)


class FanOutFailed(DuetimeError):
    """Lambda did not take an asynchronous invocation."""

    code = "fan_out_failed"


class SleepEpoch(Protocol):
    """The part of ``stores.core.leases.LeaseStore`` that is used."""

    def sleep_epoch(self) -> int: ...

    def advance_sleep_epoch(self, epoch: int) -> bool: ...


def is_awake(epoch: int) -> bool:
    """Tell whether ``epoch`` is one in which the pollers are awake."""
    return epoch % 2 == 1


class Waker:
    """To be called with timers after they were stored: wakes the pollers if they sleep and one is due soon.

    Raises nothing. Where it fails, the watchdog finds the timer within a minute. From several threads at once.
    """

    def __init__(self, epochs: SleepEpoch, *, clock: Clock, invoke: Invoke, function: str) -> None:
        self._epochs = epochs
        self._clock = clock
        self._invoke = invoke
        self._function = function
        self._trusted_until = (float("-inf"), clock.now())
        """By both clocks: one that was frozen has counted no monotonic seconds, and one that is set goes back."""

    def __call__(self, timers: Sequence[Timer]) -> None:
        monotonic, at = self._clock.monotonic(), self._clock.now()
        soon = at + timedelta(seconds=AHEAD_SECONDS)
        if not any(timer.next_attempt_at is not None and timer.next_attempt_at <= soon for timer in timers):
            return
        if monotonic < self._trusted_until[0] and at < self._trusted_until[1]:
            return
        seconds = TRUST_SECONDS if self._are_awake() else self._wake()
        self._trusted_until = monotonic + seconds, at + timedelta(seconds=seconds)

    def _are_awake(self) -> bool:
        """Tell whether they are known to be."""
        try:
            return is_awake(self._epochs.sleep_epoch())
        except StoreError as error:
            logger.warning(
                "whether pollers sleep could not be read: one is started",
                extra={"action": "wake.unreadable", "error": error.code},
            )
            return False

    def _wake(self) -> float:
        """Return for how long that is enough."""
        try:
            self._invoke(self._function, WAKE_EVENT)
        except FanOutFailed as error:
            logger.error(
                "the pollers could not be woken: the watchdog finds what is due within a minute",
                extra={"action": "wake.failed", "error": error.message},
            )
            return 0.0
        logger.info("the pollers were woken", extra={"action": "wake.invoked"})
        return _INVOKED_SECONDS
