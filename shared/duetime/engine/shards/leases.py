"""Ownership of shards: which are owned, their renewal and release. ``claiming`` decides what is claimed.

Invariants:

1. A shard is polled and fired only while ``monotonic < trusted_until``, where ``trusted_until`` is the monotonic
   time at which the claim or renewal was *sent*, plus the lease, less the skew margin, and never after the
   deadline of this run. So trust ends before the store lets anybody else claim.
2. Renewal happens at a third of the lease, so two renewals may fail before trust ends. It never waits for claims,
   and measures the store's time first: without that, nothing is trusted any longer than it was. A shard that cannot
   be written for now is tried again every ``keep_interval_seconds``, and the others are renewed all the same.
3. Claims go out in batches that take about half a second at most. What a batch won is owned, and polled, at once.
4. A shard is released only when nothing of it is in flight, or after what is in flight was parked.
5. Losing a claim or a lease is normal: the shard is dropped and others carry on.
6. The store says which shards are free. What a worker refused is tried again after the others, until the share is
   full; what nobody has held for longer than a lease is anyone's, whatever the shares say (sharing.py). What a
   worker held that has died for certain is free at once.
7. A shard whose reads have all failed for longer than a lease, while renewals were answered, is given back and not
   claimed before a look at it succeeds. A worker that is left with none is away: the others share without it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from duetime.domain.errors import StoreError, StoreUnavailable
from duetime.domain.shards import Lease
from duetime.engine.context import EngineContext
from duetime.engine.settings import SKEW_MARGIN_SECONDS
from duetime.engine.shards.claiming import ShardClaims
from duetime.engine.shards.reading import ShardReading
from duetime.engine.shards.shard import ShardState
from duetime.engine.shards.unreadable import UnreadableShards
from duetime.engine.waiting import WakeupEvent
from duetime.stores.core.leases import HasDied
from duetime.stores.core.store import Store

log = logging.getLogger(__name__)

_ERRORS_PER_LINE = 10
"""Of those in a row, for the log."""


class LeaseKeeper:
    """Keeps the set ``owned`` as it should be. ``owned`` is touched by the event loop only."""

    def __init__(
        self,
        context: EngineContext,
        store: Store,
        *,
        worker_id: str,
        metadata: str,
        has_died: HasDied,
        on_recovery: Callable[[], None],
        drop: Callable[[ShardState], None],
    ) -> None:
        """``metadata`` and ``has_died`` as in ``LeaseStore.claim``. ``on_recovery`` is called when the store
        answers again after an outage, ``drop`` when a shard must not be fired from any more."""
        self._store = store
        self._clock = context.clock
        self._settings = context.settings
        self._stats = context.stats
        self._wake = context.wake
        # Renewals have a thread of their own: however slow other calls are, they are never kept waiting.
        self._offload = context.threads.make(1, "duetime-leases")
        self._worker_id = worker_id
        self._on_recovery = on_recovery
        self._drop = drop
        self._alarm, self._release_alarm = WakeupEvent(), WakeupEvent()
        self.owned: dict[int, ShardState] = {}
        self._unrenewed: list[ShardState] = []
        self._claims = ShardClaims(
            context,
            store,
            worker_id=worker_id,
            metadata=metadata,
            has_died=has_died,
            owned=self.owned,
            own=self._own,
            drop=drop,
        )
        self.begin(None, None)

    def begin(self, shard_ids: Sequence[int] | None, deadline: float | None) -> None:
        """Before ``run``: which shards (None: all there are, shared with the other workers) and until when."""
        self._deadline = deadline
        self._renewed_at = float("-inf")
        self._is_timed = asyncio.Event()
        self._unreadable = UnreadableShards(self._store.timers, clock=self._clock, settings=self._settings)
        self._claims.begin(shard_ids, self._unreadable)

    def set_shards(self, shard_ids: Sequence[int]) -> None:
        """Claim these from now on. For a run that was given shards."""
        self._claims.set_shards(shard_ids)

    @property
    def orphans(self) -> int:
        """How many shards nobody has held for longer than a lease, as far as is known."""
        return self._claims.orphans

    @property
    def unreadable(self) -> int:
        """How many shards were given back since they could not be read, and still cannot."""
        return len(self._unreadable)

    def stop_claiming(self) -> None:
        """Only keep what is owned from now on."""
        self._claims.stop()
        self._alarm.set()

    def look(self) -> None:
        """Ask the store now which shards there are, and not at the next interval."""
        self._alarm.set()

    def release_soon(self) -> None:
        """Release now what nothing holds any more, and not at the next interval."""
        self._release_alarm.set()

    async def run(self) -> None:
        """Look after ownership until cancelled.

        While the store does not answer it is asked as often as ever, and by these loops alone: all else backs off,
        and is told when the store is back. So an outage costs the store little and nobody much time after its end.
        """
        tasks = [
            asyncio.ensure_future(self._repeat(self._keep, self._release_alarm)),
            asyncio.ensure_future(self._repeat(self._claim, self._alarm)),
        ]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _repeat(self, step: Callable[[], Awaitable[float]], alarm: WakeupEvent) -> None:
        """Take ``step`` again and again, each time after the seconds that it says."""
        errors = 0
        while True:
            pause = self._settings.keep_interval_seconds
            try:
                pause = await step()
            except StoreError as error:
                if errors % _ERRORS_PER_LINE == 0:
                    log.warning(
                        "the store did not answer about leases, trying again: %s",
                        error,
                        extra={"action": "lease.retried", "error": error.code, "errors": errors + 1},
                    )
                errors += 1
            else:
                if errors:
                    errors = 0
                    self._on_recovery()
            await alarm.wait(pause)

    # -- what is owned ---------------------------------------------------------------------------------------

    async def release(self, shards: Sequence[ShardState]) -> None:
        """Give shards back so that others can claim them at once."""
        for shard in shards:
            self.owned.pop(shard.shard_id, None)
        leases = [shard.lease for shard in shards]
        if leases:
            now = self._clock.now()
            await self._offload.run(lambda: self._store.leases.release(leases, now=now))
            log.info("shards released", extra={"action": "shard.released", "shards": len(leases)})

    async def release_all(self, timeout_seconds: float) -> None:
        """After ``run``: give back all that is owned, what a claim in flight still wins among it, and be gone."""
        await self._claims.finish(timeout_seconds)
        await self.release(list(self.owned.values()))
        if self._claims.is_shared:
            await self._offload.run(lambda: self._store.leases.withdraw_worker(self._worker_id))

    async def _claim(self) -> float:
        await self._is_timed.wait()
        return await self._claims.claim_share()

    async def _keep(self) -> float:
        if self._clock.has_jumped:
            self._distrust()
        self._give_back_unreadable()  # not after a renewal that may be the first for long: reads have not been tried
        if self._clock.monotonic() - self._renewed_at >= self._settings.lease_seconds / 3:
            self._renewed_at = await self._renew(list(self.owned.values()))
        elif self._unrenewed:
            with suppress(StoreUnavailable):
                await self._renew([shard for shard in self._unrenewed if self.owned.get(shard.shard_id) is shard])
        await self._release_finished()
        return self._settings.keep_interval_seconds

    def _distrust(self) -> None:
        """Fire nothing before the store has been asked again, which is done at once."""
        log.warning(
            "this machine's clock was set, or it slept: nothing is fired before the store's time is known again",
            extra={"action": "clock.parted"},
        )
        for shard in self.owned.values():
            shard.trusted_until = float("-inf")
        self._renewed_at = float("-inf")

    async def _renew(self, shards: Sequence[ShardState]) -> float:
        """Renew the leases. Return when that was asked for (monotonic)."""
        leases = [shard.lease for shard in shards]
        sent = self._clock.monotonic()

        def renew() -> list[Lease | None]:
            self._clock.measure()
            if not leases:
                return []
            seconds = self._settings.lease_seconds
            return self._store.leases.renew(leases, lease_seconds=seconds, now=self._clock.now())

        renewed = await self._offload.run(renew)
        self._unrenewed = []
        for shard, lease in zip(shards, renewed, strict=True):
            if self.owned.get(shard.shard_id) is not shard:
                continue
            if lease is None:
                self._lose(shard)
            elif lease == shard.lease:
                self._unrenewed.append(shard)
            else:
                shard.lease = replace(shard.lease, expires_at=lease.expires_at)
                if not shard.is_trusted(self._clock.monotonic()):
                    self._wake.set()  # what came due meanwhile was not read
                shard.trusted_until = self._trust_after(sent)
        if self._unrenewed:
            log.warning(
                "shards cannot be written for now, and are renewed later than the others",
                extra={"action": "lease.put_off", "shards": len(self._unrenewed)},
            )
        self._is_timed.set()
        return sent

    def _lose(self, shard: ShardState) -> None:
        del self.owned[shard.shard_id]
        self._stats.leases_lost += 1
        log.warning("shard lost to another owner", extra={"action": "shard.lost", "shard_id": shard.shard_id})
        self._drop(shard)

    def _give_back_unreadable(self) -> None:
        stuck = self._unreadable.give_back(self.owned.values())
        for shard in stuck:
            shard.is_releasing = True
            self._drop(shard)
        if stuck:
            log.error(
                "shards cannot be read, although their leases are renewed: they are given back until they can",
                extra={"action": "shard.given_back", "shards": len(stuck)},
            )

    async def _release_finished(self) -> None:
        finished = [
            shard for shard in self.owned.values() if shard.is_releasing and not shard.is_polling and not shard.holds
        ]
        await self.release(finished)

    def _trust_after(self, sent: float) -> float:
        trusted = sent + self._settings.lease_seconds - SKEW_MARGIN_SECONDS
        return trusted if self._deadline is None else min(trusted, self._deadline)

    def _own(self, lease: Lease, sent: float) -> None:
        self.owned[lease.shard_id] = ShardState(
            lease=lease,
            trusted_until=self._trust_after(sent),
            reading=ShardReading(
                shard_id=lease.shard_id,
                interval_seconds=self._settings.min_poll_interval_seconds,
                survey_at=self._clock.monotonic(),
            ),
            is_releasing=not self._claims.is_claiming,
        )
