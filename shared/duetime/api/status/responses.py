"""Responses about the service itself: its health, and who polls its shards."""

from __future__ import annotations

import json
from typing import Annotated, Literal

from msgspec import Meta

from duetime.api.http.responses import Instant, Page, ResponseModel
from duetime.domain.shards import ShardStatus


class ShardOwnerResponse(ResponseModel):
    """What the owner of a shard told of itself when it claimed."""

    process_id: int | None
    service_version: str | None
    host: str | None


class ShardResponse(ResponseModel):
    """Who polls a shard. ``live`` is false when the lease has run out or was released."""

    shard_id: int
    version: Annotated[int, Meta(description="counts claims; 0 when it was never claimed", examples=[42])]
    owner_id: str | None
    claimed_at: Instant | None
    lease_expires_at: Instant | None
    live: Annotated[bool, Meta(description="by the store's clock")]
    owner: ShardOwnerResponse | None


def shard_response(shard: ShardStatus) -> ShardResponse:
    return ShardResponse.of(shard, live=not shard.is_free, owner=_owner(shard))


def _owner(shard: ShardStatus) -> ShardOwnerResponse | None:
    """Return what the owner told of itself; None where there is none, and of what was told by something else."""
    try:
        facts = json.loads(shard.metadata or "null")
    except ValueError:
        return None
    if shard.owner_id is None or not isinstance(facts, dict):
        return None
    process_id, version, host = facts.get("processId"), facts.get("serviceVersion"), facts.get("host")
    return ShardOwnerResponse(
        process_id=process_id if isinstance(process_id, int) else None,
        service_version=version if isinstance(version, str) else None,
        host=host if isinstance(host, str) else None,
    )


class ShardPage(Page[ShardResponse]):
    """Shards in order of id."""


class HealthResponse(ResponseModel):
    status: Literal["ok", "unavailable"]
    version: str
    store: Literal["ok", "unavailable", "not_ready"]
    clock: Annotated[
        Literal["ok", "differs", "unknown"],
        Meta(description="whether this machine's clock agrees with the store's, by which timers fire, to a second"),
    ]
    clock_offset_seconds: Annotated[
        float | None,
        Meta(description="how far this machine's clock is ahead; 0 within what can be told, null when it is unknown"),
    ]
    shards_given_back: Annotated[
        int,
        Meta(description="how many shards this process's poller has given back since it cannot read them"),
    ]
