"""The outbox relay: takes events out of the outbox, hands them to the publishers, and marks them.

``OutboxRelay.run_once`` does a bounded piece of that and says when it wants to be called again; ``run`` calls it
until it is told to stop. One process of a deployment does the work at a time: whoever holds the lease of
``OUTBOX_SHARD``, a shard that has no timers and is in no list. Should two ever publish at once (a lease ended in the
middle of it), events repeat and their order stays, since both begin with each call's first unpublished one.

Order of the steps: publish, then mark. A crash in between repeats events and loses none.
docs/decisions/0015 has the reasons.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from math import inf

from duetime.calls.publishing import EventPublisher, publish_in_order, ref_of
from duetime.domain.call_events import CallEvent
from duetime.domain.call_steps import DeletionReason, NewId, deleted
from duetime.domain.clock import Clock
from duetime.domain.errors import StoreError
from duetime.domain.service_calls import ServiceCall
from duetime.domain.shards import Lease
from duetime.domain.times import round_down
from duetime.stores.core.calls import CallStore
from duetime.stores.core.leases import HasDied, LeaseStore, nobody_has
from duetime.stores.core.outbox import Outbox
from duetime.stores.port.calls import CallRef
from duetime.stores.port.outbox import OutboxEvent

log = logging.getLogger(__name__)

OUTBOX_SHARD = -2
"""Reserved: shards of timers count from 0, and -1 is the catalogue's partition on DynamoDB."""
FIRST_BACKOFF_SECONDS = 0.5
MAX_BACKOFF_SECONDS = 60.0
STORE_RETRY_SECONDS = 0.75
"""With its jitter less than a second: so soon an outage of the store is over for events, as it is for timers."""
GATHER_SECONDS = 0.1
"""An event that comes alone goes out at once. What is written in this time after it goes out together."""
_ERRORS_PER_LINE = 20
MAX_BLOCKED = 500
"""Calls that may wait for another try at once. Beyond that all publishing pauses: a publisher is down."""
_LOG_FAILURES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class RelaySettings:
    """``poll_interval_seconds``: how long an event that another process wrote may go unseen.
    ``retention_seconds``: how long published events are kept."""

    lease_seconds: float = 10.0
    poll_interval_seconds: float = 1.0
    batch: int = 500
    retention_seconds: float = 7 * 86_400.0
    prune_interval_seconds: float = 60.0
    prune_limit: int = 500


@dataclass(slots=True)
class OutboxStats:
    """``published`` and ``failures`` (tries of a call's next event) only grow; the others are as they are now.

    ``backlog``: unpublished events as far as they were looked at, a page at most, and of calls that wait one each.
    ``oldest_seconds``: the age of the oldest of them.
    """

    published: int = 0
    failures: int = 0
    pruned: int = 0
    store_errors: int = 0
    backlog: int = 0
    oldest_seconds: int = 0
    is_active: int = 0

    def counters(self) -> Mapping[str, int]:
        return {
            "outbox_published": self.published,
            "outbox_failures": self.failures,
            "outbox_pruned": self.pruned,
            "outbox_store_errors": self.store_errors,
        }

    def gauges(self) -> Mapping[str, int]:
        return {
            "outbox_backlog": self.backlog,
            "outbox_oldest_seconds": self.oldest_seconds,
            "outbox_active": self.is_active,
        }


@dataclass(slots=True)
class _Blocked:
    """A call whose next event was not taken ``failures`` times; left alone until ``until`` (monotonic seconds)."""

    failures: int
    until: float


class OutboxRelay:
    """For one thread, but for ``notify`` and ``stats``."""

    def __init__(
        self,
        leases: LeaseStore,
        outbox: Outbox,
        publishers: Sequence[EventPublisher],
        *,
        calls: CallStore,
        clock: Clock,
        settings: RelaySettings,
        owner_id: str,
        metadata: str = "{}",
        has_died: HasDied = nobody_has,
        random: Callable[[], float],
        new_id: NewId,
    ) -> None:
        """``metadata``: JSON that tells of this process. ``has_died`` as in ``LeaseStore.claim``.
        ``random`` gives floats in [0, 1)."""
        self._new_id = new_id
        self._leases = leases
        self._outbox = outbox
        self._calls = calls
        self._publishers = publishers
        self._clock = clock
        self._settings = settings
        self._owner_id = owner_id
        self._metadata = metadata
        self._has_died = has_died
        self._random = random
        self.stats = OutboxStats()
        self._lease: Lease | None = None
        self._renew_at = 0.0
        self._prune_at = 0.0
        self._blocked: dict[CallRef, _Blocked] = {}
        self._store_failures = 0
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._is_eager = True

    # -- life ------------------------------------------------------------------------------------------------

    def notify(self) -> None:
        """Hint from any thread that events were just written."""
        self._wake.set()

    def stop(self) -> None:
        """Let ``run`` return after what it does now. From any thread."""
        self._stop.set()
        self._wake.set()

    def run(self) -> None:
        """Call ``run_once`` until told to stop, then give the lease back."""
        while not self._stop.is_set():
            seconds = self.run_once()
            gathered_at = self._clock.monotonic() + GATHER_SECONDS
            # While it backs off, a hint says nothing new.
            if (self._wake if self._is_eager else self._stop).wait(seconds) and seconds:
                self._stop.wait(max(0.0, gathered_at - self._clock.monotonic()))
            self._wake.clear()
        self.release()

    def run_once(self) -> float:
        """Do what there is to do, a page of it at most; return in how many seconds to call again unless notified."""
        try:
            seconds = self._run_once()
        except StoreError as error:
            return self._back_off(error)
        self._store_failures = 0
        return seconds

    def release(self) -> None:
        """Let another process go on at once."""
        lease, self._lease, self.stats.is_active = self._lease, None, 0
        if lease is None:
            return
        try:
            self._leases.release([lease], now=self._clock.now())
        except StoreError as error:
            log.warning(
                "the outbox could not be released; it is free when its lease ends: %s",
                error,
                extra={"action": "outbox.release_failed", "error": error.code},
            )

    def _run_once(self) -> float:
        settings = self._settings
        self._is_eager = self._has_lease()
        if not self._is_eager:  # there is nothing that a hint could hasten
            return settings.lease_seconds / 3 * self._jitter()
        monotonic = self._clock.monotonic()
        waiting = {ref: blocked.until for ref, blocked in self._blocked.items() if blocked.until > monotonic}
        if len(waiting) > MAX_BLOCKED:
            self._is_eager = False
            return min(waiting.values()) - monotonic
        found = self._outbox.unpublished(limit=settings.batch, skip=frozenset(waiting))
        is_page_full = len(found) >= settings.batch
        self._observe(found, len(waiting))
        if self._blocked and not is_page_full:
            # Those that were wanted and are not there have been seen to by somebody else.
            known = {ref_of(stored.event) for stored in found} | waiting.keys()
            self._blocked = {ref: blocked for ref, blocked in self._blocked.items() if ref in known}
        if found:
            self._publish(found)
        if self._prune() or is_page_full:
            return 0.0
        next_try = min((blocked.until for blocked in self._blocked.values()), default=inf)
        return min(settings.poll_interval_seconds, max(next_try - self._clock.monotonic(), 0.0))

    # -- publishing ------------------------------------------------------------------------------------------

    def _publish(self, found: Sequence[OutboxEvent]) -> None:
        published = publish_in_order(found, self._publishers)
        if published.taken:
            self._outbox.mark_published(published.taken, now=self._clock.now())
            self.stats.published += len(published.taken)
        if self._blocked:
            for stored in published.taken:
                self._blocked.pop(ref_of(stored.event), None)
        for number, (ref, reason) in enumerate(published.failed.items()):
            is_told, is_for_store = number < _LOG_FAILURES, ref in published.waiting_for_store
            self._block(ref, reason, is_told=is_told, is_for_store=is_for_store)

    def _block(self, ref: CallRef, reason: str, *, is_told: bool, is_for_store: bool) -> None:
        known = self._blocked.get(ref)
        failures = 1 if known is None else known.failures + 1
        backoff = min(FIRST_BACKOFF_SECONDS * 2.0 ** min(failures - 1, 10), MAX_BACKOFF_SECONDS)
        wait = (STORE_RETRY_SECONDS if is_for_store else backoff) * self._jitter()
        self._blocked[ref] = _Blocked(failures, self._clock.monotonic() + wait)
        self.stats.failures += 1
        if is_told:  # a flood says the same over and over
            log.warning(
                "an event was not published; it is tried again, and its call's later events wait",
                extra={
                    "action": "outbox.publish_failed",
                    "tenant_id": ref.tenant_id,
                    "call_id": ref.call_id,
                    "failures": failures,
                    "backoff_seconds": wait,
                    "error": reason,
                },
            )

    def _observe(self, found: Sequence[OutboxEvent], blocked: int) -> None:
        self.stats.backlog = len(found) + blocked
        now = self._clock.now()
        oldest = min((stored.event.occurred_at for stored in found), default=now)
        self.stats.oldest_seconds = int((now - oldest).total_seconds())

    # -- the rest --------------------------------------------------------------------------------------------

    def _prune(self) -> bool:
        """Remove a part of what has expired. True when there is more."""
        monotonic, settings = self._clock.monotonic(), self._settings
        if monotonic < self._prune_at:
            return False
        now = self._clock.now()
        before = now - timedelta(seconds=settings.retention_seconds)
        pruned = self._calls.prune(
            now=now, events_published_before=before, limit=settings.prune_limit, event_of=self._expired_event
        )
        self.stats.pruned += pruned
        if pruned >= settings.prune_limit:
            return True
        self._prune_at = monotonic + settings.prune_interval_seconds * self._jitter()
        return False

    def _expired_event(self, call: ServiceCall) -> CallEvent:
        return deleted(call, DeletionReason.EXPIRY, new_id=self._new_id, now=round_down(self._clock.now()))

    def _has_lease(self) -> bool:
        """Claim, or renew when a third of the lease has gone by: also after a pause, before anything is done."""
        monotonic, now, seconds = self._clock.monotonic(), self._clock.now(), self._settings.lease_seconds
        held = self._lease
        if held is None:
            (self._lease,) = self._leases.claim(
                [OUTBOX_SHARD],
                self._owner_id,
                lease_seconds=seconds,
                metadata=self._metadata,
                has_died=self._has_died,
                now=now,
            )
        elif monotonic >= self._renew_at:
            (self._lease,) = self._leases.renew([held], lease_seconds=seconds, now=now)
        else:
            return True
        self._renew_at = monotonic + seconds / 3
        if (self._lease is None) != (held is None):
            self._tell_change(is_active=self._lease is not None)
        return self._lease is not None

    def _tell_change(self, *, is_active: bool) -> None:
        self.stats.is_active = int(is_active)
        if is_active:
            log.info("this process publishes events", extra={"action": "outbox.claimed"})
            return
        self._blocked.clear()  # another process knows how they fare
        self.stats.backlog = self.stats.oldest_seconds = 0
        log.warning("another process publishes events now", extra={"action": "outbox.lost"})

    def _back_off(self, error: StoreError) -> float:
        self._is_eager = False
        self.stats.store_errors += 1
        if self._store_failures % _ERRORS_PER_LINE == 0:
            log.warning(
                "the outbox could not be read or written; it is tried again: %s",
                error,
                extra={"action": "outbox.store_failed", "error": error.code, "failures": self._store_failures + 1},
            )
        self._store_failures += 1
        return STORE_RETRY_SECONDS * self._jitter()

    def _jitter(self) -> float:
        return 0.75 + self._random() / 2
