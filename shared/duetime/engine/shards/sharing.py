"""How workers share shards: who counts, how many each should own, and in which order a worker tries what is free."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from hashlib import blake2b


def fair_share(total: int, workers: Iterable[str], worker_id: str) -> int:
    """Return how many of ``total`` shards ``worker_id`` should own. The shares of all ``workers`` sum to
    ``total``."""
    members = sorted({*workers, worker_id})
    share, rest = divmod(total, len(members))
    return share + (members.index(worker_id) < rest)


def claim_order(shard_ids: Iterable[int], workers: Iterable[str], worker_id: str) -> list[int]:
    """Put first the shards that ``worker_id`` has the highest hash of among ``workers``, then those with one above,
    ...

    So workers that begin together try different shards first, each in an order of its own (rendezvous hashing).
    """
    others = [other for other in workers if other != worker_id]

    def place(shard_id: int) -> tuple[int, int]:
        own = _hash(worker_id, shard_id)
        return sum(_hash(other, shard_id) > own for other in others), own

    return sorted(shard_ids, key=place)


def _hash(worker_id: str, shard_id: int) -> int:
    return int.from_bytes(blake2b(f"{worker_id}/{shard_id}".encode(), digest_size=8).digest(), "big")


class Members:
    """The workers that count in the shares: those that live, but for those that let shards lie.

    A worker that owns nothing while shards have been free for longer than a lease makes no progress. It counts again
    when it owns something, and when it has been away and comes back. All times are monotonic seconds.
    """

    def __init__(self, patience_seconds: float) -> None:
        self._patience_seconds = patience_seconds
        self._idle_since: dict[str, float] = {}
        self._passed_over: set[str] = set()
        self.counted: frozenset[str] = frozenset()

    def observe(self, living: Sequence[str], owners: Collection[str], *, has_orphans: bool, at: float) -> set[str]:
        """``owners``: the workers with live leases; ``has_orphans``: shards have been free for longer than a lease.

        The workers that count no longer.
        """
        idle = {worker: self._idle_since.get(worker, at) for worker in living if worker not in owners}
        self._idle_since = idle
        known = self._passed_over & idle.keys()
        since = at - self._patience_seconds
        self._passed_over = known | {worker for worker in idle if has_orphans and idle[worker] <= since}
        self.counted = frozenset(living) - self._passed_over
        return self._passed_over - known


class FreeShards:
    """Since when shards are free, and how often claims of them were refused meanwhile."""

    def __init__(self, patience_seconds: float) -> None:
        self._patience_seconds = patience_seconds
        self._since: dict[int, float] = {}
        self._refusals: dict[int, int] = {}

    def observe(self, free: Iterable[int], *, at: float) -> None:
        """``free``: all that were free at ``at``."""
        self._since = {shard_id: self._since.get(shard_id, at) for shard_id in free}
        self._refusals = {shard_id: count for shard_id, count in self._refusals.items() if shard_id in self._since}

    def refuse(self, shard_ids: Iterable[int]) -> None:
        """Claims of these were refused, or failed: others come first, and these are tried again after them."""
        for shard_id in shard_ids:
            self._refusals[shard_id] = self._refusals.get(shard_id, 0) + 1

    def by_refusals(self, shard_ids: Iterable[int]) -> list[int]:
        """Return those that were refused less often first, otherwise in the order that they have."""
        return sorted(shard_ids, key=lambda shard_id: self._refusals.get(shard_id, 0))

    def orphans(self, *, at: float) -> set[int]:
        """Return the shards that nobody has held for longer than a lease: they are anyone's."""
        return {shard_id for shard_id, since in self._since.items() if at - since >= self._patience_seconds}
