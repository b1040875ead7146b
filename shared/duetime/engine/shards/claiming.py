"""Which of the free shards a worker claims: a fair share among the workers, and what nobody else takes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from duetime.domain.errors import StoreError
from duetime.domain.shards import Lease
from duetime.engine.context import EngineContext
from duetime.engine.shards.shard import ShardState
from duetime.engine.shards.sharing import FreeShards, Members, claim_order, fair_share
from duetime.engine.shards.unreadable import UnreadableShards
from duetime.stores.core.leases import HasDied
from duetime.stores.core.store import Store

log = logging.getLogger(__name__)

_MAX_ANNOUNCE_INTERVAL_SECONDS = 3.0
CLAIM_SECONDS = 0.5
"""What a batch of claims may take, and how long claims go on before the store is asked anew what is free."""
HAND_OVER_INTERVAL_SECONDS = 0.1
"""How often a worker that was given its shards looks whether the one before it has released them."""
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


class ShardClaims:
    """The claims of one worker. The invariants are those of ``leases``. In the event loop's thread."""

    def __init__(
        self,
        context: EngineContext,
        store: Store,
        *,
        worker_id: str,
        metadata: str,
        has_died: HasDied,
        owned: dict[int, ShardState],
        own: Callable[[Lease, float], None],
        drop: Callable[[ShardState], None],
    ) -> None:
        """``own`` adds a lease that was won to ``owned``, with the monotonic time at which its claim was sent.
        ``drop`` is called when a shard must not be fired from any more."""
        self._store = store
        self._clock = context.clock
        self._settings = settings = context.settings
        self._stats = context.stats
        self._wake = context.wake
        self._offload = context.threads.make(1, "duetime-claims")
        self._worker_id = worker_id
        self._metadata = metadata
        self._has_died = has_died
        self._owned = owned
        self._own = own
        self._drop = drop
        # However long leases are, a newcomer must not wait long for its share.
        self._announce_interval_seconds = min(settings.lease_seconds / 3, _MAX_ANNOUNCE_INTERVAL_SECONDS)
        self._batch_size = _FIRST_BATCH

    def begin(self, shard_ids: Sequence[int] | None, unreadable: UnreadableShards) -> None:
        """Begin a run. ``shard_ids`` None: all there are, shared with the other workers."""
        self._fixed = None if shard_ids is None else list(shard_ids)
        self._unreadable = unreadable
        self._announced_at = float("-inf")
        self._in_flight: asyncio.Task[None] | None = None
        self._members = Members(self._settings.lease_seconds)
        self._free = FreeShards(self._settings.lease_seconds)
        self._adopted: set[int] = set()
        self.is_claiming = True

    def set_shards(self, shard_ids: Sequence[int]) -> None:
        """Change what a run claims that shares with nobody."""
        self._fixed = list(shard_ids)

    @property
    def is_shared(self) -> bool:
        """Whether this worker shares all shards with the others."""
        return self._fixed is None

    @property
    def orphans(self) -> int:
        """How many shards nobody has held for longer than a lease, as far as is known."""
        return len(self._free.orphans(at=self._clock.monotonic()))

    def stop(self) -> None:
        """Claim nothing from now on."""
        self.is_claiming = False

    async def finish(self, timeout_seconds: float) -> None:
        """Wait for a claim in flight: what it wins is owned."""
        if self._in_flight is not None:
            await asyncio.wait([self._in_flight], timeout=timeout_seconds)

    async def claim_share(self) -> float:
        """Claim for a while. Returns the seconds until it is time to claim again."""
        if not self.is_claiming:
            return self._settings.keep_interval_seconds
        await self._look_at_unreadable()
        survey = await self._survey()
        self._observe(survey)
        target = self._target(len(survey.shard_ids))
        self._mark_surplus(target + len(self._adopted & self._owned.keys()))
        if await self._claim_free([each for each in survey.free if each not in self._unreadable], target):
            return 0.0
        return (
            HAND_OVER_INTERVAL_SECONDS
            if self._is_handed_over(survey.shard_ids)
            else self._settings.keep_interval_seconds
        )

    def _is_handed_over(self, shard_ids: Sequence[int]) -> bool:
        """Tell whether another has shards that are for this worker alone, so that it is about to release them."""
        return self._fixed is not None and any(
            shard_id not in self._owned and shard_id not in self._unreadable for shard_id in shard_ids
        )

    async def _look_at_unreadable(self) -> None:
        if not self._unreadable:
            return
        readable = await self._offload.run(self._unreadable.look)
        self._unreadable.forget(readable)
        for shard_id in self._owned.keys() & set(readable):  # it was about to be given back
            self._owned[shard_id].reading.retry(self._clock.monotonic())
        if readable:
            log.info("shards can be read again", extra={"action": "shard.readable", "shards": len(readable)})

    async def _survey(self) -> _Survey:
        """Ask the store which shards there are and, when there may be a need to claim, which are free."""
        is_member = self._fixed is None and not self._is_away
        announce = is_member and (self._clock.monotonic() - self._announced_at >= self._announce_interval_seconds)
        withdraw = self._is_away and self._announced_at > float("-inf")
        fixed, owned, known = self._fixed, set(self._owned), self._members.counted

        def look() -> _Survey:
            now = self._clock.now()
            workers = self._announce() if announce else None
            if withdraw:
                self._store.leases.withdraw_worker(self._worker_id)
            shard_ids = fixed if fixed is not None else self._store.catalogue.shard_map().shard_ids()
            unowned = [shard_id for shard_id in shard_ids if shard_id not in owned]
            statuses = self._store.leases.statuses(unowned, now=now) if unowned else []
            owners = {status.owner_id for status in statuses if status.owner_id and not status.is_free}
            dead = {owner for owner in owners if self._has_died(owner)}
            free = [status.shard_id for status in statuses if status.is_free or status.owner_id in dead]
            if free and is_member and workers is None:
                # Somebody released or died: shares have changed, so ask who is there before claiming.
                workers = self._announce()
            ordered = claim_order(free, known if workers is None else workers, self._worker_id)
            return _Survey(shard_ids, workers, ordered, frozenset(owners - dead))

        survey = await self._offload.run(look)
        if survey.workers is not None:
            self._announced_at = self._clock.monotonic()
        elif withdraw:
            self._announced_at = float("-inf")
        return survey

    @property
    def _is_away(self) -> bool:
        return len(self._unreadable) > 0 and not self._owned

    def _announce(self) -> list[str]:
        """Who lives. Workers that have died are withdrawn."""
        now, seconds = self._clock.now(), self._settings.lease_seconds
        workers = self._store.leases.announce_worker(self._worker_id, ttl_seconds=seconds, now=now)
        dead = [worker for worker in workers if self._has_died(worker)]
        for worker in dead:
            self._store.leases.withdraw_worker(worker)
            log.warning("a worker of this machine has died", extra={"action": "worker.died", "worker": worker})
        return [worker for worker in workers if worker not in dead]

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
        if self._fixed is not None:  # what is owned and no longer asked for is kept
            return max(total, len(self._owned))
        return fair_share(total, self._members.counted, self._worker_id)

    def _mark_surplus(self, target: int) -> None:
        """Shards beyond the fair share are no longer polled, and released once nothing of them is in flight."""
        if not self.is_claiming:  # by now all are being released
            return
        kept = [shard for shard in self._owned.values() if shard.shard_id not in self._unreadable]
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
        while self.is_claiming and self._clock.monotonic() < end:
            room = target - len(self._owned)
            if room <= 0:
                wanted = [shard_id for shard_id in wanted if shard_id in orphans]
                room = self._batch_size
            size = min(room, self._batch_size)
            batch, wanted = wanted[:size], wanted[size:]
            if not batch:
                break
            # On its own: who cancels this must not lose what the store is about to give.
            self._in_flight = asyncio.ensure_future(self._claim(batch, is_share=len(self._owned) < target))
            await asyncio.shield(self._in_flight)
        if self._stats.claims > claims:
            log.info("shards claimed", extra={"action": "shard.claimed", "shards": self._stats.claims - claims})
        return bool(wanted)

    async def _claim(self, shard_ids: Sequence[int], *, is_share: bool) -> None:
        """Own at once what is won. ``is_share`` False: it is beyond the share."""
        sent, seconds = self._clock.monotonic(), self._settings.lease_seconds
        self._free.refuse(shard_ids)  # until it is known better
        try:
            leases = await self._offload.run(
                lambda: self._store.leases.claim(
                    shard_ids,
                    self._worker_id,
                    lease_seconds=seconds,
                    metadata=self._metadata,
                    has_died=self._has_died,
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
            self._wake.set()
