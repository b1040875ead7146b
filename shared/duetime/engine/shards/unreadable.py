"""Shards that a worker gives back since it cannot read them, although its leases are renewed."""

from __future__ import annotations

from collections.abc import Iterable

from duetime.domain.clock import Clock
from duetime.domain.errors import StoreError
from duetime.engine.settings import EngineSettings
from duetime.engine.shards.shard import ShardState
from duetime.stores.core.store import TimerStore

_LOOK_SECONDS = 0.5
_MOST_DOUBLINGS = 6


class UnreadableShards:
    """Those that were given back, until a look at them succeeds. Nothing of them is claimed before that.

    A shard that was given back again without having been read meanwhile is not looked at before a lease has passed,
    then two, then four: what a look can read is not always what a poll must. All but ``look`` is for the event loop.
    """

    def __init__(self, timers: TimerStore, *, clock: Clock, settings: EngineSettings) -> None:
        self._timers = timers
        self._clock = clock
        self._settings = settings
        self._look_at: dict[int, float] = {}
        self._in_vain: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._look_at)

    def __contains__(self, shard_id: int) -> bool:
        return shard_id in self._look_at

    def give_back(self, owned: Iterable[ShardState]) -> list[ShardState]:
        """Return those of the shards that nothing could be read of for longer than a lease, while that was
        renewed."""
        at, lease_seconds = self._clock.monotonic(), self._settings.lease_seconds
        stuck = [
            shard
            for shard in owned
            if not shard.is_releasing and shard.is_trusted(at) and shard.reading.failing_seconds > lease_seconds
        ]
        for shard in stuck:
            shard_id = shard.shard_id
            in_vain = 0 if shard.reading.has_read else min(self._in_vain.get(shard_id, -1) + 1, _MOST_DOUBLINGS)
            self._in_vain[shard_id] = in_vain
            self._look_at[shard_id] = at + (lease_seconds * 2 ** (in_vain - 1) if in_vain else 0.0)
        return stuck

    def look(self) -> list[int]:
        """Return, in a thread, which can be read. It ends with the first that cannot, and after half a second."""
        readable: list[int] = []
        begun = self._clock.monotonic()
        for shard_id, not_before in list(self._look_at.items()):
            if not_before > begun:
                continue
            try:
                self._timers.due(shard_id, until=self._clock.now(), limit=self._settings.page_size)
            except StoreError:
                self._look_at[shard_id] = self._look_at.pop(shard_id)  # the others come first the next time
                break
            readable.append(shard_id)
            if self._clock.monotonic() - begun > _LOOK_SECONDS:
                break
        return readable

    def forget(self, readable: Iterable[int]) -> None:
        """Forget them: they may be claimed again."""
        for shard_id in readable:
            self._look_at.pop(shard_id, None)
