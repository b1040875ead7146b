"""Ownership of shards: claim, renew, release, and a fair share among workers.

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
   full; what nobody has held for longer than a lease is anyone's, whatever the shares say (sharing.py).
7. A shard whose reads have all failed for longer than a lease, while renewals were answered, is given back and not
   claimed before a look at it succeeds. A worker that is left with none is away: the others share without it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from duetime.domain.errors import StoreError, StoreUnavailable
from duetime.domain.shards import Lease
from duetime.engine.context import EngineContext
from duetime.engine.shards.reading import ShardReading
from duetime.engine.shards.shard import ShardState
from duetime.engine.shards.sharing import FreeShards, Members, claim_order, fair_share
from duetime.engine.shards.unreadable import UnreadableShards
from duetime.engine.waiting import WakeupEvent
from duetime.stores.port.store import Store

log = logging.getLogger(__name__)

_ERRORS_PER_LINE = 10
"""Of those in a row, for the log."""

_MAX_ANNOUNCE_INTERVAL_SECONDS = 3.0
CLAIM_SECONDS = 0.5
"""What a batch of claims may take, and how long claims go on before the store is asked anew what is free."""
_FIRST_BATCH = 100
_MAX_BATCH = 500


@dataclass(frozen=True, slots=True)
class _Survey:
    """What one look at the store showed. ``workers`` None: they were not asked for. ``free`` in the order of claims;
    ``owners`` of the shards that are not free."""

    shard_ids: list[int]
    workers: list[str] | None
    free: list[int]
    owners: frozenset[str]


class LeaseKeeper:
    """Keeps the set ``owned`` as it should be. ``owned`` is touched by the event loop only."""

    def __init__(
        self,
        context: EngineContext,
        store: Store,
        *,
        worker_id: str,
        metadata: str,
        on_recovery: Callable[[], None],
        drop: Callable[[ShardState], None],
    ) -> None:
        """``metadata`` as in ``LeaseStore.claim``. ``on_recovery`` is called when the store answers again after an
        outage, ``drop`` when a shard must not be fired from any more."""
        self._store = store
        self._clock = context.clock
        self._settings = settings = context.settings
        self._stats = context.stats
        self._on_change = context.wake.set
        # Renewals have a thread of their own: however slow other calls are, they are never kept waiting.
        self._offload = context.threads.make(1, "duetime-leases")
        self._claim_offload = context.threads.make(1, "duetime-claims")
        self._worker_id = worker_id
        self._metadata = metadata
        self._on_recovery = on_recovery
        self._drop = drop
        self._alarm = WakeupEvent()
        self.owned: dict[int, ShardState] = {}
        self._unrenewed: list[ShardState] = []
        # However long leases are, a newcomer must not wait long for its share.
        self._announce_interval_seconds = min(settings.lease_seconds / 3, _MAX_ANNOUNCE_INTERVAL_SECONDS)
        self._batch_size = _FIRST_BATCH
        self.begin(None, None)

    def begin(self, shard_ids: Sequence[int] | None, deadline: float | None) -> None:
        """Before ``run``: which shards (None: all there are, shared with the other workers) and until when."""
        self._fixed = None if shard_ids is None else list(shard_ids)
        self._deadline = deadline
        self._renewed_at = self._announced_at = float("-inf")
        self._is_timed = asyncio.Event()
        self._is_claiming = True
        self._claim_in_flight: asyncio.Task[None] | None = None
        self._members = Members(self._settings.lease_seconds)
        self._free = FreeShards(self._settings.lease_seconds)
        self._unreadable = UnreadableShards(self._store.timers, clock=self._clock, settings=self._settings)
        self._adopted: set[int] = set()

    @property
    def orphans(self) -> int:
        """How many shards nobody has held for longer than a lease, as far as is known."""
        return len(self._free.orphans(at=self._clock.monotonic()))

    @property
    def unreadable(self) -> int:
        """How many shards were given back since they could not be read, and still cannot."""
        return len(self._unreadable)

    def stop_claiming(self) -> None:
        """From now on only keep what is owned."""
        self._is_claiming = False
        self._alarm.set()

    def look(self) -> None:
        """Ask the store now which shards there are, and not at the next interval."""
        self._alarm.set()

    async def run(self) -> None:
        """Look after ownership until cancelled.

        While the store does not answer it is asked as often as ever, and by these loops alone: all else backs off,
        and is told when the store is back. So an outage costs the store little and nobody much time after its end.
        """
        tasks = [
            asyncio.ensure_future(self._repeat(self._keep, WakeupEvent())),
            asyncio.ensure_future(self._repeat(self._claim_share, self._alarm)),
        ]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _repeat(self, step: Callable[[], Awaitable[bool]], alarm: WakeupEvent) -> None:
        """Take ``step`` again and again: at once where it says that there is more to do."""
        errors = 0
        while True:
            is_more = False
            try:
                is_more = await step()
            except StoreError as error:
                if errors % _ERRORS_PER_LINE == 0:
                    log.warning(
                        "the store did not answer about leases, trying again",
                        extra={"action": "lease.retried", "error": error.code, "errors": errors + 1},
                    )
                errors += 1
            else:
                if errors:
                    errors = 0
                    self._on_recovery()
            await alarm.wait(0.0 if is_more else self._settings.keep_interval_seconds)

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
        if self._claim_in_flight is not None:
            await asyncio.wait([self._claim_in_flight], timeout=timeout_seconds)
        await self.release(list(self.owned.values()))
        if self._fixed is None:
            await self._offload.run(lambda: self._store.leases.withdraw_worker(self._worker_id))

    async def _keep(self) -> bool:
        if self._clock.has_jumped:
            self._distrust()
        self._give_back_unreadable()  # not after a renewal that may be the first for long: reads have not been tried
        if self._clock.monotonic() - self._renewed_at >= self._settings.lease_seconds / 3:
            self._renewed_at = await self._renew(list(self.owned.values()))
        elif self._unrenewed:
            with suppress(StoreUnavailable):
                await self._renew([shard for shard in self._unrenewed if self.owned.get(shard.shard_id) is shard])
        await self._release_finished()
        return False

    def _distrust(self) -> None:
        """Nothing is fired before the store has been asked again, which is done at once."""
        log.warning(
            "this machine's clock was set, or it slept: nothing is fired before the store's time is known again",
            extra={"action": "clock.parted"},
        )
        for shard in self.owned.values():
            shard.trusted_until = float("-inf")
        self._renewed_at = float("-inf")

    async def _renew(self, shards: Sequence[ShardState]) -> float:
        """When that was asked for (monotonic)."""
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
        trusted = sent + self._settings.lease_seconds - self._settings.skew_margin_seconds
        return trusted if self._deadline is None else min(trusted, self._deadline)

    # -- what to claim ---------------------------------------------------------------------------------------

    async def _claim_share(self) -> bool:
        """Claim for a while; whether there is more to claim."""
        await self._is_timed.wait()
        if not self._is_claiming:
            return False
        await self._look_at_unreadable()
        survey = await self._survey()
        self._observe(survey)
        target = self._target(len(survey.shard_ids))
        self._mark_surplus(target + len(self._adopted & self.owned.keys()))
        return await self._claim_free([each for each in survey.free if each not in self._unreadable], target)

    async def _look_at_unreadable(self) -> None:
        if not self._unreadable:
            return
        readable = await self._claim_offload.run(self._unreadable.look)
        self._unreadable.forget(readable)
        for shard_id in self.owned.keys() & set(readable):  # it was about to be given back
            self.owned[shard_id].reading.retry(self._clock.monotonic())
        if readable:
            log.info("shards can be read again", extra={"action": "shard.readable", "shards": len(readable)})

    async def _survey(self) -> _Survey:
        """Ask the store which shards there are and, when there may be a need to claim, which are free."""
        is_member = self._fixed is None and not self._is_away
        announce = is_member and (self._clock.monotonic() - self._announced_at >= self._announce_interval_seconds)
        withdraw = self._is_away and self._announced_at > float("-inf")
        fixed, owned, known = self._fixed, set(self.owned), self._members.counted

        def look() -> _Survey:
            now = self._clock.now()
            workers = self._announce() if announce else None
            if withdraw:
                self._store.leases.withdraw_worker(self._worker_id)
            shard_ids = fixed if fixed is not None else self._store.catalogue.shard_map().shard_ids()
            unowned = [shard_id for shard_id in shard_ids if shard_id not in owned]
            statuses = self._store.leases.statuses(unowned, now=now) if unowned else []
            free = [status.shard_id for status in statuses if status.is_free]
            owners = frozenset(status.owner_id for status in statuses if status.owner_id and not status.is_free)
            if free and is_member and workers is None:
                # Somebody released or died: shares have changed, so ask who is there before claiming.
                workers = self._announce()
            ordered = claim_order(free, known if workers is None else workers, self._worker_id)
            return _Survey(shard_ids, workers, ordered, owners)

        survey = await self._claim_offload.run(look)
        if survey.workers is not None:
            self._announced_at = self._clock.monotonic()
        elif withdraw:
            self._announced_at = float("-inf")
        return survey

    @property
    def _is_away(self) -> bool:
        return len(self._unreadable) > 0 and not self.owned

    def _announce(self) -> list[str]:
        now, seconds = self._clock.now(), self._settings.lease_seconds
        return self._store.leases.announce_worker(self._worker_id, ttl_seconds=seconds, now=now)

    def _observe(self, survey: _Survey) -> None:
        at = self._clock.monotonic()
        self._free.observe(survey.free, at=at)
        if survey.workers is None:
            return
        before = self._members.counted
        others = [worker for worker in survey.workers if worker != self._worker_id]
        passed_over = self._members.observe(others, survey.owners, has_orphans=bool(self._free.orphans(at=at)), at=at)
        for worker in passed_over:
            log.warning(
                "a worker claims nothing of what is free, and does not count in the shares",
                extra={"action": "worker.passed_over", "worker": worker},
            )
        if self._members.counted != before:
            self._adopted.clear()  # shares are others now

    def _target(self, total: int) -> int:
        return total if self._fixed is not None else fair_share(total, self._members.counted, self._worker_id)

    def _mark_surplus(self, target: int) -> None:
        """Shards beyond the fair share are no longer polled, and released once nothing of them is in flight."""
        if not self._is_claiming:  # by now all are being released
            return
        kept = [shard for shard in self.owned.values() if shard.shard_id not in self._unreadable]
        surplus = len(kept) - target
        for shard in sorted(kept, key=lambda shard: -shard.shard_id):
            is_surplus = surplus > 0
            surplus -= 1
            if is_surplus and not shard.is_releasing:
                shard.is_releasing = True
                self._drop(shard)
            elif not is_surplus and shard.is_releasing:
                shard.is_releasing = False

    async def _claim_free(self, free: Sequence[int], target: int) -> bool:
        """Try ``free``, all of them, until ``target`` is reached; whether some are left for want of time."""
        end = self._clock.monotonic() + CLAIM_SECONDS
        orphans = self._free.orphans(at=self._clock.monotonic())
        wanted, claims = self._free.by_refusals(free), self._stats.claims
        while self._is_claiming and self._clock.monotonic() < end:
            room = target - len(self.owned)
            if room <= 0:
                wanted = [shard_id for shard_id in wanted if shard_id in orphans]
                room = self._batch_size
            size = min(room, self._batch_size)
            batch, wanted = wanted[:size], wanted[size:]
            if not batch:
                break
            # On its own: who cancels this must not lose what the store is about to give.
            self._claim_in_flight = asyncio.ensure_future(self._claim(batch, is_share=len(self.owned) < target))
            await asyncio.shield(self._claim_in_flight)
        if self._stats.claims > claims:
            log.info("shards claimed", extra={"action": "shard.claimed", "shards": self._stats.claims - claims})
        return bool(wanted)

    async def _claim(self, shard_ids: Sequence[int], *, is_share: bool) -> None:
        """Own at once what is won. ``is_share`` False: it is beyond the share."""
        sent, seconds = self._clock.monotonic(), self._settings.lease_seconds
        self._free.refuse(shard_ids)  # until it is known better
        try:
            leases = await self._claim_offload.run(
                lambda: self._store.leases.claim(
                    shard_ids,
                    self._worker_id,
                    lease_seconds=seconds,
                    metadata=self._metadata,
                    now=self._clock.now(),
                )
            )
        except StoreError:
            self._batch_size = max(1, len(shard_ids) // 2)  # one shard that cannot be claimed ends up alone
            raise
        taken = self._clock.monotonic() - sent
        if taken > CLAIM_SECONDS:
            self._batch_size = max(1, self._batch_size // 2)
        elif taken < CLAIM_SECONDS / 4:
            self._batch_size = min(_MAX_BATCH, self._batch_size * 2)
        won = [lease for lease in leases if lease is not None]
        for lease in won:
            self._own(lease, sent)
        if not is_share:
            self._adopted.update(lease.shard_id for lease in won)
        if won:
            self._stats.claims += len(won)
            self._on_change()

    def _own(self, lease: Lease, sent: float) -> None:
        self.owned[lease.shard_id] = ShardState(
            lease=lease,
            trusted_until=self._trust_after(sent),
            reading=ShardReading(
                shard_id=lease.shard_id,
                interval_seconds=self._settings.min_poll_interval_seconds,
                survey_at=self._clock.monotonic(),
            ),
            is_releasing=not self._is_claiming,
        )
