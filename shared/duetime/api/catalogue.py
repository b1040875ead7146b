"""Namespaces, shards and health."""

from __future__ import annotations

from bisect import bisect_right

from duetime import __version__
from duetime.api.context import Services
from duetime.api.encoding import encode, list_json, namespace_json, shard_json
from duetime.api.http import Reply, Request
from duetime.api.reading import read_body, read_query, validate
from duetime.api.schemas import PLAIN_SHAPE, NamespaceBody, PageQuery
from duetime.domain.errors import InvalidCursor, InvalidInput, StoreError, StoreNotReady
from duetime.domain.ids import check_namespace

MAX_BODY_BYTES = 64 * 1024


def put_namespace(services: Services, request: Request, *, namespace: str) -> Reply:
    """PUT: 201, or 200 when it exists as asked; ``NamespaceConflict`` when it exists otherwise."""
    try:
        check_namespace(namespace)
    except ValueError as error:
        raise InvalidInput("namespace", str(error)) from None
    body = validate(NamespaceBody, read_body(request, PLAIN_SHAPE, limit_bytes=MAX_BODY_BYTES, is_optional=True))
    store = services.context.store
    num_shards, dedicated = body.num_shards, body.dedicated
    if num_shards is None or dedicated is None:
        known = store.get_namespace(namespace)
        if num_shards is None:
            num_shards = known.num_shards if known else services.context.default_num_shards
        if dedicated is None:
            dedicated = known.dedicated if known else False
    stored, is_new = store.create_namespace(
        namespace, num_shards=num_shards, dedicated=dedicated, now=services.context.clock.now()
    )
    headers = {"location": f"/v1/namespaces/{namespace}"} if is_new else {}
    return Reply(status=201 if is_new else 200, body=namespace_json(stored), headers=headers)


def get_namespace(services: Services, request: Request, *, namespace: str) -> Reply:  # noqa: ARG001
    return Reply(status=200, body=namespace_json(services.namespaces.get(namespace)))


def list_namespaces(services: Services, request: Request) -> Reply:
    query = read_query(PageQuery, request)
    bound_to = ("namespaces",)
    cursor = services.cursors.decode(query.cursor, bound_to)
    page = services.context.store.list_namespaces(cursor=cursor, limit=query.limit)
    next_cursor = services.cursors.encode(page.next_cursor, bound_to)
    return Reply(status=200, body=list_json(map(namespace_json, page.items), next_cursor))


def list_shards(services: Services, request: Request) -> Reply:
    """GET: the shards in order of id, with their owners. A cursor is the last id that was shown."""
    query = read_query(PageQuery, request)
    bound_to = ("shards",)
    cursor = services.cursors.decode(query.cursor, bound_to)
    store = services.context.store
    shard_ids = sorted(store.shard_map().shard_ids())
    start = 0 if cursor is None else bisect_right(shard_ids, _shard_id(cursor))
    shown = shard_ids[start : start + query.limit]
    is_last = start + query.limit >= len(shard_ids)
    now = services.context.clock.now()
    items = [shard_json(status, now=now) for status in (store.shard_statuses(shown) if shown else [])]
    next_cursor = None if is_last else services.cursors.encode(str(shown[-1]), bound_to)
    return Reply(status=200, body=list_json(items, next_cursor))


def get_health(services: Services, request: Request) -> Reply:  # noqa: ARG001
    """GET: 200 when the store answers, 503 when it does not."""
    try:
        services.context.store.check()
    except StoreError as error:
        store = "not_ready" if isinstance(error, StoreNotReady) else "unavailable"
        body = encode({"status": "unavailable", "version": __version__, "store": store})
        return Reply(status=503, body=body, headers={"retry-after": "1"})
    return Reply(status=200, body=encode({"status": "ok", "version": __version__, "store": "ok"}))


def _shard_id(cursor: str) -> int:
    try:
        return int(cursor)
    except ValueError:
        raise InvalidCursor("cursor", "is not a cursor of this list") from None
