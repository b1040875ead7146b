"""Namespaces: create, set, read, pause, resume, reshard, delete."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from duetime.api.context import Services
from duetime.api.http.parsing import read_body, read_nothing, read_query, validate
from duetime.api.http.preconditions import IF_MATCH, IF_NONE_MATCH, etag, if_match, not_modified
from duetime.api.http.request import Reply, Request
from duetime.api.http.request_models import PLAIN_SHAPE, PageQuery
from duetime.api.http.responses import json_reply
from duetime.api.http.route import Route
from duetime.api.namespaces.requests import (
    NAMESPACE_SHAPE,
    DeleteNamespaceQuery,
    NamespaceBody,
    PauseBody,
    ReshardBody,
)
from duetime.api.namespaces.responses import (
    NamespaceDeletionResponse,
    NamespacePage,
    NamespaceResponse,
    namespace_response,
)
from duetime.app import namespace_states
from duetime.app.namespaces import put_namespace as put
from duetime.domain.errors import InvalidInput
from duetime.domain.ids import check_namespace
from duetime.domain.namespaces import Namespace, NamespaceSettings
from duetime.domain.principals import Role

_SETTINGS = NamespaceSettings.__dataclass_fields__.keys()


_NAMESPACE = "/v1/namespaces/<namespace>"


@Route(
    "PUT",
    _NAMESPACE,
    Role.ADMIN,
    summary="Create a namespace, confirm it, or change its settings",
    body=NamespaceBody,
    body_is_required=False,
    responses={200: NamespaceResponse, 201: NamespaceResponse},
    conditions=(IF_MATCH,),
)
def put_namespace(services: Services, request: Request, *, namespace: str) -> Reply:
    """Create a namespace (201), confirm it, or change its settings (200).

    Settings in the body are changed, null clears one, and omitted ones stay. The number of shards is changed by a
    reshard alone: another number is a 409, and so is a namespace of another tenant.
    """
    try:
        check_namespace(namespace)
    except ValueError as error:
        raise InvalidInput("namespace", str(error)) from None
    wanted = if_match(request)
    body = validate(NamespaceBody, read_body(request, NAMESPACE_SHAPE, is_optional=True))
    stored, is_new = put(
        services.access(request),
        namespace,
        _given_settings(body),
        num_shards=body.num_shards,
        dedicated=body.dedicated,
        default_num_shards=services.context.default_num_shards,
        wanted=wanted,
    )
    services.namespaces.note(stored)
    reply = _namespace_reply(201 if is_new else 200, stored)
    return replace(reply, headers={**reply.headers, "location": f"/v1/namespaces/{namespace}"}) if is_new else reply


def _given_settings(body: NamespaceBody) -> dict[str, Any]:
    """Return the fields of ``NamespaceSettings`` that ``body`` has, with their values."""
    given = {name: getattr(body, name) for name in body.model_fields_set if name in _SETTINGS}
    rate = given.get("rate_limit_per_second")
    return given if rate is None else given | {"rate_limit_per_second": float(rate)}


@Route(
    "GET",
    _NAMESPACE,
    Role.READER,
    summary="Read a namespace",
    responses={200: NamespaceResponse, 304: None},
    conditions=(IF_NONE_MATCH,),
)
def get_namespace(services: Services, request: Request, *, namespace: str) -> Reply:
    """Return a namespace; 304 when ``If-None-Match`` names its revision."""
    found = services.access(request).found(namespace)
    return not_modified(request, found.revision) or _namespace_reply(200, found)


def _namespace_reply(status: int, namespace: Namespace) -> Reply:
    return json_reply(status, namespace_response(namespace), {"etag": etag(namespace.revision)})


@Route(
    "POST",
    f"{_NAMESPACE}/pause",
    Role.ADMIN,
    summary="Fire nothing of a namespace until it is resumed",
    body=PauseBody,
    body_is_required=False,
    responses={200: NamespaceResponse},
    conditions=(IF_MATCH,),
)
def pause_namespace(services: Services, request: Request, *, namespace: str) -> Reply:
    """Stop firing the timers of a namespace. Every poller knows within seconds."""
    wanted = if_match(request)
    body = validate(PauseBody, read_body(request, PLAIN_SHAPE, is_optional=True))
    stored = namespace_states.paused(services.access(request), namespace, reason=body.reason, wanted=wanted)
    services.namespaces.note(stored)
    return _namespace_reply(200, stored)


@Route(
    "POST",
    f"{_NAMESPACE}/resume",
    Role.ADMIN,
    summary="Fire the timers of a namespace again; late ones as its misfire says",
    responses={200: NamespaceResponse},
    conditions=(IF_MATCH,),
)
def resume_namespace(services: Services, request: Request, *, namespace: str) -> Reply:
    """Fire the timers of a namespace again. Those that came due meanwhile follow its ``misfire`` setting."""
    wanted = if_match(request)
    read_nothing(request)
    stored = namespace_states.resumed(services.access(request), namespace, wanted=wanted)
    services.namespaces.note(stored)
    return _namespace_reply(200, stored)


@Route(
    "POST",
    f"{_NAMESPACE}/reshard",
    Role.ADMIN,
    summary="Give a namespace another number of shards while it runs",
    body=ReshardBody,
    responses={200: NamespaceResponse},
    conditions=(IF_MATCH,),
)
def reshard_namespace(services: Services, request: Request, *, namespace: str) -> Reply:
    """Give a namespace another number of shards. New timers go there from the last `earlierShards[].until` on, two
    minutes from now; the others stay and fire where they are.

    In the 20 seconds before, creating a timer whose shard changes is a 503 with Retry-After.
    """
    wanted = if_match(request)
    body = validate(ReshardBody, read_body(request, PLAIN_SHAPE))
    stored = namespace_states.resharded(services.access(request), namespace, body.num_shards, wanted=wanted)
    services.namespaces.note(stored)
    return _namespace_reply(200, stored)


@Route(
    "DELETE",
    _NAMESPACE,
    Role.ADMIN,
    summary="Delete a namespace, and with force its timers: a step at a time, until the answer is 200",
    query=DeleteNamespaceQuery,
    responses={200: NamespaceDeletionResponse, 202: NamespaceDeletionResponse},
    conditions=(IF_MATCH,),
)
def delete_namespace(services: Services, request: Request, *, namespace: str) -> Reply:
    """Take one step of a deletion: 202 while more steps are needed, 200 when the namespace is gone.

    Repeat until 200.
    """
    wanted = if_match(request)
    query = read_query(DeleteNamespaceQuery, request)
    step = namespace_states.delete_some(services.access(request), namespace, is_forced=query.force, wanted=wanted)
    services.namespaces.forget(namespace)
    response = NamespaceDeletionResponse(removed=step.removed, done=step.is_done)
    if step.is_done:
        return json_reply(200, response)
    return json_reply(202, response, {"retry-after": str(step.wait_seconds)})


@Route(
    "GET", "/v1/namespaces", Role.READER, summary="List namespaces", query=PageQuery, responses={200: NamespacePage}
)
def list_namespaces(services: Services, request: Request) -> Reply:
    """Return a page of the namespaces of the key's tenant; without authentication, of all tenants."""
    query = read_query(PageQuery, request)
    cursors = services.cursors.of(request.principal, "namespaces")
    cursor = cursors.decode(query.cursor)
    tenant_id = None if request.principal is None else request.principal.tenant_id
    page = services.context.store.catalogue.list_namespaces(cursor=cursor, limit=query.limit, tenant_id=tenant_id)
    next_cursor = cursors.encode(page.next_cursor)
    return json_reply(200, NamespacePage([namespace_response(each) for each in page.items], next_cursor))
