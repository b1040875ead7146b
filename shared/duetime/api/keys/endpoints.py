"""The API keys of a tenant, for its admins: create, list, delete; and for everyone what their own one is."""

from __future__ import annotations

from datetime import datetime, timedelta

from duetime.api.context import Services
from duetime.api.http.errors import ApiKeyNotFound, FieldError, InvalidFields
from duetime.api.http.parsing import read_body, read_query, validate
from duetime.api.http.request import Reply, Request
from duetime.api.http.request_models import PLAIN_SHAPE, PageQuery
from duetime.api.http.responses import json_reply
from duetime.api.http.route import Keeps, Route
from duetime.api.keys.requests import ApiKeyBody
from duetime.api.keys.responses import (
    ApiKeyPage,
    CreatedKeyResponse,
    PrincipalResponse,
    api_key_response,
    created_key_response,
    principal_response,
)
from duetime.app.api_keys import create_key
from duetime.domain.api_keys import is_key_id
from duetime.domain.errors import InvalidInput
from duetime.domain.principals import Role
from duetime.domain.times import round_up

_NEVER_KEPT = {"cache-control": "no-store"}


_API_KEYS = "/v1/tenants/<tenant>/api-keys"


@Route(
    "GET",
    "/v1/principal",
    Role.READER,
    summary="Tell for which tenant and with which role the key acts",
    responses={200: PrincipalResponse},
)
def get_principal(services: Services, request: Request) -> Reply:  # noqa: ARG001
    """Return the tenant and the role of the key of this request."""
    return json_reply(200, principal_response(request.principal), _NEVER_KEPT)


@Route(
    "POST",
    _API_KEYS,
    Role.ADMIN,
    summary="Create an API key of the tenant",
    body=ApiKeyBody,
    responses={201: CreatedKeyResponse},
    keeps=Keeps.FACT,
)
def create_api_key(services: Services, request: Request, *, tenant: str) -> Reply:
    """Create an API key and return it (201). No other response shows it."""
    context = services.context
    now = context.clock.now()
    body = validate(ApiKeyBody, read_body(request, PLAIN_SHAPE))
    created = create_key(
        context.store,
        key_id=context.new_id(),
        tenant_id=tenant,
        role=body.role,
        name=body.name or "",
        expires_at=_end(body, now),
        now=now,
    )
    return json_reply(201, created_key_response(created), _NEVER_KEPT)


@Route(
    "GET",
    _API_KEYS,
    Role.ADMIN,
    summary="List the API keys of the tenant, without their secrets",
    query=PageQuery,
    responses={200: ApiKeyPage},
)
def list_api_keys(services: Services, request: Request, *, tenant: str) -> Reply:
    """Return the API keys of the tenant in order of creation, expired ones too, without their secrets."""
    query = read_query(PageQuery, request)
    cursors = services.cursors.of(request.principal, "api-keys", tenant)
    cursor = cursors.decode(query.cursor)
    page = services.context.store.catalogue.list_api_keys(tenant, cursor=cursor, limit=query.limit)
    next_cursor = cursors.encode(page.next_cursor)
    return json_reply(200, ApiKeyPage([api_key_response(key) for key in page.items], next_cursor))


@Route("DELETE", f"{_API_KEYS}/<key_id>", Role.ADMIN, summary="Delete an API key", responses={204: None})
def delete_api_key(services: Services, request: Request, *, tenant: str, key_id: str) -> Reply:  # noqa: ARG001
    """Delete an API key (204). It is refused at once, or within seconds where it was checked a moment ago.

    Any key can be deleted, also the one of this request and the last one: a leaked key must never be kept.
    """
    if not is_key_id(key_id) or not services.context.store.catalogue.delete_api_key(tenant, key_id):
        raise ApiKeyNotFound(key_id)
    return Reply(status=204)


def _end(body: ApiKeyBody, now: datetime) -> datetime | None:
    if body.expires_at is not None and body.expires_in is not None:
        raise InvalidFields([FieldError("expiresIn", "cannot be given together with expiresAt")])
    if body.expires_in is not None:
        return round_up(now + timedelta(seconds=body.expires_in))
    if body.expires_at is not None and body.expires_at <= now:
        raise InvalidInput("expiresAt", "must be in the future")
    return body.expires_at
