"""Responses about namespaces and their secrets."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Raw

from duetime.api.http.responses import Instant, Page, ResponseModel, raw
from duetime.app.namespaces import CreatedSecret
from duetime.domain.namespaces import EncryptedSecret, Misfire, Namespace, NamespaceState
from duetime.domain.times import format_duration, format_instant

_GIVEN_POLICY = "of timers without one of their own, as it was given"


class EarlierShardsResponse(ResponseModel):
    num_shards: int
    first_shard: int
    until: Annotated[Instant, Meta(description="when new timers go, or went, to the shards that came after these")]


class NamespaceResponse(ResponseModel):
    name: str
    tenant_id: Annotated[str, Meta(description="the owner; never changes")]
    revision: Annotated[
        int, Meta(ge=1, description="counts changes of settings, secrets and shards; the ETag is this in quotes")
    ]
    num_shards: Annotated[int, Meta(description="changes by a reshard alone")]
    dedicated: bool
    first_shard: int
    earlier_shards: Annotated[
        list[EarlierShardsResponse],
        Meta(description="of a namespace that was resharded, the oldest first: timers may be on these, too"),
    ]
    created_at: Instant
    max_in_flight: int | None
    rate_limit: float | None
    misfire: Annotated[Misfire | None, Meta(description="of timers that came due in a pause; null: fire")]
    min_schedule_interval: Annotated[str | None, Meta(description="a duration in whole units; null: 1s")]
    state: NamespaceState
    paused_at: Instant | None
    pause_reason: str | None
    unreadable: Annotated[
        str | None,
        Meta(
            description="in a list: why what is stored of it cannot be read; then its settings are null,"
            " what is not known of its shards is 0, and its timers wait"
        ),
    ]
    retry_policy: Annotated[Raw, Meta(description=_GIVEN_POLICY, extra_json_schema={"type": ["object", "null"]})]


def namespace_response(namespace: Namespace) -> NamespaceResponse:
    settings = namespace.settings
    rate, pause = settings.rate_limit_per_second, settings.pause
    return NamespaceResponse.of(
        namespace,
        earlier_shards=[
            EarlierShardsResponse.of(each, until=format_instant(each.until)) for each in namespace.earlier_shards
        ],
        max_in_flight=settings.max_in_flight,
        rate_limit=int(rate) if rate is not None and rate.is_integer() else rate,
        misfire=settings.misfire,
        min_schedule_interval=None
        if settings.min_schedule_interval_ms is None
        else format_duration(settings.min_schedule_interval_ms),
        paused_at=None if pause is None else format_instant(pause.at),
        pause_reason=None if pause is None else pause.reason,
        retry_policy=raw(settings.retry_policy_json),
    )


class NamespacePage(Page[NamespaceResponse]):
    """Namespaces in order of name."""


class NamespaceDeletionResponse(ResponseModel):
    """One step of a deletion. 200: the namespace is gone; 202: send the same request again."""

    removed: Annotated[int, Meta(description="timers that this step removed")]
    done: bool


class SecretResponse(ResponseModel):
    id: str
    created_at: Instant
    expires_at: Annotated[Instant | None, Meta(description="null until another secret is to replace it")]


class CreatedSecretResponse(SecretResponse):
    secret: Annotated[str, Meta(description="whsec_...; shown by this response alone")]
    previous: Annotated[
        SecretResponse | None, Meta(description="the secret before it, which stays valid until it expires")
    ]


def secret_response(secret: EncryptedSecret) -> SecretResponse:
    """Return what may be told of a secret."""
    return SecretResponse.of(secret, id=secret.secret_id)


def created_secret_response(created: CreatedSecret) -> CreatedSecretResponse:
    return CreatedSecretResponse.of(
        created.secret,
        id=created.secret.secret_id,
        secret=created.text,
        previous=None if created.previous is None else secret_response(created.previous),
    )


class SecretPage(Page[SecretResponse]):
    """The secrets that are valid now, oldest first: at most two."""
