"""Responses about API keys."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta
from msgspec.structs import asdict

from duetime.api.http.responses import Instant, Page, ResponseModel
from duetime.app.api_keys import CreatedKey
from duetime.domain.api_keys import ApiKey
from duetime.domain.principals import Principal, Role


class ApiKeyResponse(ResponseModel):
    id: str
    tenant_id: str
    role: Annotated[Role | None, Meta(description="null when it cannot be read")]
    name: str
    created_at: Instant
    expires_at: Annotated[Instant | None, Meta(description="null when it never does")]
    unreadable: Annotated[
        str | None,
        Meta(description="why what is stored of it cannot be read; such a key lets nobody in"),
    ]


class CreatedKeyResponse(ApiKeyResponse):
    key: Annotated[str, Meta(description="dtk_...; shown by this response alone")]


def api_key_response(key: ApiKey) -> ApiKeyResponse:
    """Return what may be told of a key."""
    return ApiKeyResponse.of(key, id=key.key_id)


def created_key_response(created: CreatedKey) -> CreatedKeyResponse:
    return CreatedKeyResponse(**asdict(api_key_response(created.key)), key=created.text)


class ApiKeyPage(Page[ApiKeyResponse]):
    """The API keys of a tenant in order of creation, expired ones too."""


class PrincipalResponse(ResponseModel):
    """Who makes the request. All null where no key is asked for, and everything is allowed."""

    tenant_id: str | None
    role: Role | None
    key_id: str | None


def principal_response(principal: Principal | None) -> PrincipalResponse:
    if principal is None:
        return PrincipalResponse(tenant_id=None, role=None, key_id=None)
    return PrincipalResponse.of(principal)
