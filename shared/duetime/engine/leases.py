"""Ownership of shards: claim, renew, release, and a fair share among workers.

Invariants:

1. A shard is polled and fired only while ``monotonic < trusted_until``, where ``trusted_until`` is the monotonic
   time at which the claim or renewal was *sent*, plus the lease, less the skew margin, and never after the
   deadline of this run. So trust ends before the store lets anybody else claim.
2. Renewal happens at a third of the lease, so two renewals may fail before trust ends.
3. A shard is released only when nothing of it is under way, or after what is under way was parked.
4. Losing a claim or a lease is normal: the shard is dropped and others carry on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from duetime.domain.clock import Clock
from duetime.domain.errors import StoreError
from duetime.domain.shards import Lease
from duetime.engine.owned import OwnedShard
from duetime.engine.payloads import HeldPayloads
from duetime.engine.reading import ShardReading
from duetime.engine.settings import EngineSettings
from duetime.engine.stats import EngineStats
from duetime.engine.waiting import Alarm, Offload
from duetime.stores.port import Store

log = logging.getLogger(__name__)

_ERRORS_PER_LINE = 10
"""Of those in a row, for the log."""

_MAX_ANNOUNCE_INTERVAL_SECONDS = 3.0


def fair_share(total: int, workers: Sequence[str], worker_id: str) -> int:
    """How many of ``total`` shards ``worker_id`` should own. The shares of all ``workers`` sum to ``total``."""
    members = sorted({*workers, worker_id})
    share, rest = divmod(total, len(members))
    return share + (members.index(worker_id) < rest)


@dataclass(frozen=True, slots=True)
class _Survey:
    """What one look at the store showed; None for what was not looked at."""

    shard_ids: list[int]
    workers: list[str] | None
    free: list[int]


class LeaseKeeper:
    """Keeps the set ``owned`` as it should be. ``owned`` is touched by the event loop only."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        settings: EngineSettings,
        stats: EngineStats,
        offload: Offload,
        worker_id: str,
        on_change: Callable[[], None],
        on_recovery: Callable[[], None],
        drop: Callable[[OwnedShard], None],
        payloads: HeldPayloads,
    ) -> None:
        """``on_change`` is called after claims, ``on_recovery`` when the store answers again after an outage;
        ``drop`` when a shard must not be fired from any more."""
        self._store = store
        self._clock = clock
        self._settings = settings
        self._stats = stats
        self._offload = offload
        self._worker_id = worker_id
        self._on_change = on_change
        self._on_recovery = on_recovery
        self._drop = drop
        self._payloads = payloads
        self._alarm = Alarm()
        self.owned: dict[int, OwnedShard] = {}
        self._fixed: list[int] | None = None
        self._deadline: float | None = None
        self._workers: list[str] = []
        self._renewed_at = self._announced_at = float("-inf")
        self._is_claiming = True
        self._wanted: list[int] = []
        # However long leases are, a newcomer must not wait long for its share.
        self._announce_interval_seconds = min(settings.lease_seconds / 3, _MAX_ANNOUNCE_INTERVAL_SECONDS)

    def begin(self, shard_ids: Sequence[int] | None, deadline: float | None) -> None:
        """Before ``run``: which shards (None: all there are, shared with the other workers) and until when."""
        self._fixed = None if shard_ids is None else list(shard_ids)
        self._deadline = deadline
        self._renewed_at = self._announced_at = float("-inf")
        self._workers = []
        self._is_claiming = True

    def stop_claiming(self) -> None:
        """From now on only keep what is owned."""
        self._is_claiming = False
        self._wanted = []
        self._alarm.ring()

    async def run(self) -> None:
        """Look after ownership until cancelled.

        While the store does not answer it is asked as often as ever, and by this loop alone: all else backs off, and
        is told when the store is back. So an outage costs the store little and nobody much time after its end.
        """
        errors = 0
        while True:
            try:
                await self._keep()
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
            await self._alarm.wait(self._settings.keep_interval_seconds)

    async def release(self, shards: Sequence[OwnedShard]) -> None:
        """Give shards back so that others can claim them at once."""
        for shard in shards:
            self.owned.pop(shard.shard_id, None)
        leases = [shard.lease for shard in shards]
        if leases:
            now = self._clock.now()
            await self._offload.run(lambda: self._store.release_leases(leases, now=now))
            log.info("shards released", extra={"action": "shard.released", "shards": len(leases)})

    async def withdraw(self) -> None:
        """Tell the other workers that this one is gone."""
        if self._fixed is None:
            await self._offload.run(lambda: self._store.withdraw_worker(self._worker_id))

    async def _keep(self) -> None:
        if self._clock.monotonic() - self._renewed_at >= self._settings.lease_seconds / 3:
            await self._renew()
        await self._release_finished()
        if self._is_claiming:
            self._share(await self._survey())
            await self._claim()

    async def _renew(self) -> None:
        shards = list(self.owned.values())
        sent, now = self._clock.monotonic(), self._clock.now()
        if shards:
            leases = [shard.lease for shard in shards]
            renewed = await self._offload.run(
                lambda: self._store.renew_leases(leases, lease_seconds=self._settings.lease_seconds, now=now)
            )
            for shard, lease in zip(shards, renewed, strict=True):
                if self.owned.get(shard.shard_id) is not shard:
                    continue
                if lease is None:
                    self._lose(shard)
                else:
                    shard.lease = replace(shard.lease, expires_at=lease.expires_at)
                    shard.trusted_until = self._trust_after(sent)
        self._renewed_at = sent

    def _lose(self, shard: OwnedShard) -> None:
        del self.owned[shard.shard_id]
        self._stats.leases_lost += 1
        log.warning("shard lost to another owner", extra={"action": "shard.lost", "shard_id": shard.shard_id})
        self._drop(shard)

    async def _survey(self) -> _Survey:
        """Ask the store which shards there are and, when there may be a need to claim, which are free."""
        announce = self._fixed is None and (
            self._clock.monotonic() - self._announced_at >= self._announce_interval_seconds
        )
        fixed, owned, now = self._fixed, set(self.owned), self._clock.now()

        def look() -> _Survey:
            workers = self._announce(now) if announce else None
            shard_ids = fixed if fixed is not None else self._store.shard_map().shard_ids()
            unowned = [shard_id for shard_id in shard_ids if shard_id not in owned]
            statuses = self._store.shard_statuses(unowned) if unowned else []
            free = [status.shard_id for status in statuses if status.is_free(now)]
            if free and fixed is None and workers is None:
                # Somebody released or died: shares have changed, so ask who is there before claiming.
                workers = self._announce(now)
            return _Survey(shard_ids, workers, free)

        survey = await self._offload.run(look)
        if survey.workers is not None:
            self._workers = survey.workers
            self._announced_at = self._clock.monotonic()
        return survey

    def _announce(self, now: datetime) -> list[str]:
        return self._store.announce_worker(self._worker_id, ttl_seconds=self._settings.lease_seconds, now=now)

    def _share(self, survey: _Survey) -> None:
        """Decide, after a survey, what to give up and what to claim."""
        target = self._target(survey)
        if self._is_claiming:
            self._mark_surplus(target)
            self._wanted = survey.free[: max(0, target - len(self.owned))]

    def _target(self, survey: _Survey) -> int:
        total = len(survey.shard_ids)
        return total if self._fixed is not None else fair_share(total, self._workers, self._worker_id)

    def _mark_surplus(self, target: int) -> None:
        """Shards beyond the fair share are no longer polled, and released once nothing of them is under way."""
        surplus = len(self.owned) - target
        for shard in sorted(self.owned.values(), key=lambda shard: -shard.shard_id):
            is_surplus = surplus > 0
            surplus -= 1
            if is_surplus and not shard.is_releasing:
                shard.is_releasing = True
                self._drop(shard)
            elif not is_surplus and shard.is_releasing:
                shard.is_releasing = False

    async def _release_finished(self) -> None:
        finished = [
            shard
            for shard in self.owned.values()
            if shard.is_releasing and not shard.is_polling and not shard.unrecorded
        ]
        await self.release(finished)

    async def _claim(self) -> None:
        shard_ids, self._wanted = self._wanted, []
        if not shard_ids:
            return
        lease_seconds = self._settings.lease_seconds

        def claim() -> list[tuple[float, Lease]]:
            claimed: list[tuple[float, Lease]] = []
            for shard_id in shard_ids:
                sent, now = self._clock.monotonic(), self._clock.now()
                try:
                    lease = self._store.claim_shard(shard_id, self._worker_id, lease_seconds=lease_seconds, now=now)
                except StoreError:
                    if not claimed:
                        raise
                    break  # what was claimed must be kept; the rest waits for the next look
                if lease is not None:
                    claimed.append((sent, lease))
            return claimed

        claimed = await self._offload.run(claim)
        for sent, lease in claimed:
            self.owned[lease.shard_id] = OwnedShard(
                lease=lease,
                trusted_until=self._trust_after(sent),
                reading=ShardReading(
                    shard_id=lease.shard_id,
                    interval_seconds=self._settings.min_poll_interval_seconds,
                    survey_at=self._clock.monotonic(),
                ),
                payloads=self._payloads,
            )
        if claimed:
            self._stats.claims += len(claimed)
            log.info("shards claimed", extra={"action": "shard.claimed", "shards": len(claimed)})
            self._on_change()

    def _trust_after(self, sent: float) -> float:
        trusted = sent + self._settings.lease_seconds - self._settings.skew_margin_seconds
        return trusted if self._deadline is None else min(trusted, self._deadline)
