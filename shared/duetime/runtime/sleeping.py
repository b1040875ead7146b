"""How the pollers on Lambda sleep while nothing is due (decision 0037). ``waking`` has what writers do.

A poller that has had nothing to do for ``IDLE_SECONDS``, and finds nothing due in as many in any shard, makes the
sleep epoch even. It polls on until no writer trusts any longer that it has seen the pollers awake. Then it releases
its shards, and looks once more: at what is due, and whether somebody has woken the pollers. If so it has them
started. The others see the epoch and do the same.

Whoever wakes makes the epoch odd first, and then looks which shards need a poller. So either a shard is released by
then, or the poller that releases it finds the epoch odd.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import timedelta

from duetime.domain.clock import Clock
from duetime.domain.errors import StoreError
from duetime.runtime.waking import AHEAD_SECONDS, TRUST_SECONDS, is_awake
from duetime.stores.core.store import Store

IDLE_SECONDS = 300.0
WATCH_AHEAD_SECONDS = 120.0
"""The watchdog wakes the pollers this long before something is due, so that it may miss a minute."""
_SKEW_SECONDS = 2.0
_LOOK_INTERVAL_SECONDS = 10.0
_HANDED_OVER_SECONDS = 30.0
"""After the start of a poller, by when the one before it drains or has ended."""

logger = logging.getLogger(__name__)


def sleeps_on(store: Store, shard_ids: Sequence[int], *, clock: Clock, is_woken: bool) -> bool:
    """Return whether nobody needs to poll. If not, the epoch is odd, and it is for the caller to find pollers.

    ``is_woken``: somebody has stored a timer that is due soon.
    """
    if not shard_ids:
        return True
    while not is_awake(epoch := store.leases.sleep_epoch()):
        if not is_woken and _is_quiet(store, shard_ids, clock, WATCH_AHEAD_SECONDS):
            return True
        if store.leases.advance_sleep_epoch(epoch):
            break
    return False


def _is_quiet(store: Store, shard_ids: Sequence[int], clock: Clock, ahead_seconds: float) -> bool:
    """Return whether nothing is due, nor will be that soon."""
    until = clock.now() + timedelta(seconds=ahead_seconds)
    # Of what comes later nothing need be read.
    pages = (store.timers.due(shard_id, until=until, limit=1, known_next=until) for shard_id in shard_ids)
    return not any(page.timers or page.unreadable or page.cursor for page in pages)


class FallingAsleep:
    """One poller on its way to sleep. Its calls block."""

    def __init__(self, store: Store, clock: Clock, *, longest_drain_seconds: float) -> None:
        """``longest_drain_seconds``: for so long a poller before this one may still record what is due then."""
        self._store = store
        self._clock = clock
        self._idle_seconds = max(IDLE_SECONDS, longest_drain_seconds + _HANDED_OVER_SECONDS)
        self._idle_since = self._look_at = clock.monotonic()
        self._timers_read: int | None = None
        self._epoch: int | None = None
        """The even one that was seen, since ``_seen_at``."""
        self._seen_at = 0.0
        self.is_over = False
        """Whether polling has ended for the sake of sleep."""

    def is_time(self, stats: Mapping[str, int], *, shards: int, all_shards: Sequence[int], is_first: bool) -> bool:
        """Return whether to stop polling now. To be asked again and again.

        ``shards``: how many the poller should own; ``all_shards``: of all pollers. Only the poller that ``is_first``
        decides that they fall asleep.
        """
        monotonic = self._clock.monotonic()
        is_busy = stats["timers_read"] != self._timers_read or stats["in_flight"] > 0
        self._timers_read = stats["timers_read"]
        if is_busy or stats["shards_owned"] < shards:
            self._idle_since = monotonic
            if is_busy and self._epoch is not None:
                self._store.leases.advance_sleep_epoch(self._epoch)
                self._epoch = None
            return False
        if monotonic < max(self._idle_since + self._idle_seconds, self._look_at):
            return False
        self._look_at = monotonic + _LOOK_INTERVAL_SECONDS
        epoch = self._store.leases.sleep_epoch()
        if is_awake(epoch):
            if self._epoch is not None:  # somebody has woken them, for something that is due soon
                self._epoch, self._idle_since = None, monotonic
                return False
            if not is_first or not _is_quiet(self._store, all_shards, self._clock, IDLE_SECONDS):
                return False
            if not self._store.leases.advance_sleep_epoch(epoch):
                return False
            epoch += 1
        if self._epoch != epoch:
            self._epoch, self._seen_at = epoch, self._clock.monotonic()
        self.is_over = self._clock.monotonic() - self._seen_at >= TRUST_SECONDS + _SKEW_SECONDS
        return self.is_over

    def is_asleep(self, shard_ids: Sequence[int]) -> bool:
        """Return whether that was right. After all shards were released."""
        try:
            if self._store.leases.sleep_epoch() == self._epoch:
                return _is_quiet(self._store, shard_ids, self._clock, AHEAD_SECONDS)
        except StoreError as error:
            logger.warning(
                "whether anything is due could not be read: pollers are started",
                extra={"action": "sleep.unreadable", "error": error.code},
            )
        return False
