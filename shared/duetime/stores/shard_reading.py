"""Ownership rows as every store reads them: one that cannot be read is nobody's to claim, and hides no other."""

from __future__ import annotations

import logging
from collections.abc import Callable

from duetime.domain.shards import ShardStatus
from duetime.stores.decoding import DECODING_ERRORS, what_is_wrong, whole

_log = logging.getLogger(__name__)


def read_status(shard_id: int, read: Callable[[], ShardStatus]) -> ShardStatus:
    """What ``read`` decodes. A damaged row may hide a live lease: its shard is not free until somebody mends it."""
    try:
        return whole(read())
    except DECODING_ERRORS as error:
        _log.error(
            "the ownership row of a shard cannot be read: nobody can claim it, and its timers wait",
            extra={"action": "shard.unreadable", "shard_id": shard_id, "reason": what_is_wrong(error)},
        )
        return ShardStatus(shard_id, is_free=False)
