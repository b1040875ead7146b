"""The service itself: its health, and who polls its shards."""

from __future__ import annotations

from bisect import bisect_right
from typing import Literal

from duetime import __version__
from duetime.api.context import Services
from duetime.api.http.parsing import read_query
from duetime.api.http.request import Reply, Request
from duetime.api.http.request_models import PageQuery
from duetime.api.http.responses import json_reply
from duetime.api.http.route import PUBLIC, Route
from duetime.api.status.responses import HealthResponse, ShardPage, shard_response
from duetime.domain.errors import InvalidCursor, StoreError, StoreNotReady
from duetime.domain.principals import Role
from duetime.stores.store_clock import TOLERANCE_SECONDS


@Route(
    "GET",
    "/v1/shards",
    Role.ADMIN,
    summary="List shards and who polls them",
    query=PageQuery,
    responses={200: ShardPage},
)
def list_shards(services: Services, request: Request) -> Reply:
    """Return the shards with their owners, by id. A cursor is the last id that was shown."""
    query = read_query(PageQuery, request)
    cursors = services.cursors.of(request.principal, "shards")
    cursor = cursors.decode(query.cursor)
    store = services.context.store
    shard_ids = sorted(store.catalogue.shard_map().shard_ids())
    start = 0 if cursor is None else bisect_right(shard_ids, _shard_id(cursor))
    shown = shard_ids[start : start + query.limit]
    is_last = start + query.limit >= len(shard_ids)
    statuses = store.leases.statuses(shown, now=services.context.clock.now()) if shown else []
    next_cursor = None if is_last else cursors.encode(str(shown[-1]))
    return json_reply(200, ShardPage([shard_response(status) for status in statuses], next_cursor))


@Route(
    "GET",
    "/health",
    PUBLIC,
    summary="Is the service, with its store, ready?",
    responses={200: HealthResponse, 503: HealthResponse},
)
def get_health(services: Services, request: Request) -> Reply:  # noqa: ARG001
    """Return 200 when the store responds, 503 when it does not. A wrong clock is reported and changes nothing."""
    try:
        services.context.store.check()
    except StoreNotReady:
        return json_reply(503, _health(services, "not_ready"), {"retry-after": "1"})
    except StoreError:
        return json_reply(503, _health(services, "unavailable"), {"retry-after": "1"})
    return json_reply(200, _health(services, "ok"))


def _health(services: Services, store: Literal["ok", "unavailable", "not_ready"]) -> HealthResponse:
    offset = services.context.clock_offset_seconds()
    return HealthResponse(
        status="ok" if store == "ok" else "unavailable",
        store=store,
        version=__version__,
        clock="unknown" if offset is None else "ok" if abs(offset) <= TOLERANCE_SECONDS else "differs",
        clock_offset_seconds=offset,
        shards_given_back=services.context.shards_given_back(),
    )


def _shard_id(cursor: str) -> int:
    try:
        return int(cursor)
    except ValueError:
        raise InvalidCursor("cursor", "is not a cursor of this list") from None
