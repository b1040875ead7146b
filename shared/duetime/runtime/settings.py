"""Every setting of every entry point, and the one place that reads them from the environment.

A field ``lease_seconds`` is the variable ``DUETIME_LEASE_SECONDS`` and, where a command has it, the option
``--lease-seconds``. An option wins over the environment, and the environment over the default. An empty variable
counts as absent. ``docs/configuration.md`` is made from these models (``scripts/write_configuration.py``).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated, TypeVar

from pydantic import AfterValidator, Field, ValidationError

from duetime.api.http.validation_messages import message_of
from duetime.domain.errors import InvalidSettings
from duetime.domain.tenants import check_tenant
from duetime.domain.times import parse_instant
from duetime.runtime.logs import LogLevel
from duetime.runtime.tuning import (
    AnyCase,
    ApiTuning,
    DispatcherTuning,
    EngineTuning,
    LambdaSettings,
    LocalEgressSettings,
    LocalEvents,
    LocalHttp,
    LocalKeySettings,
    OutboxTuning,
    Seconds,
    Settings,
    StoreSettings,
    checked_by,
    read_publishers,
)

ENV_PREFIX = "DUETIME_"
MAX_SHARDS_PER_POLLER = 4096


class TimersApiSettings(LambdaSettings, ApiTuning):
    """The timers API on Lambda."""


class ServiceCallsApiSettings(LambdaSettings, ApiTuning):
    """The API of service calls on Lambda."""


class AuthorizerSettings(LambdaSettings):
    """The authorizer of the HTTP API on Lambda."""


class PollerSettings(LambdaSettings, EngineTuning):
    """The poller on Lambda."""

    max_in_flight: int = Field(
        400,
        ge=1,
        le=100_000,
        description="Callbacks in flight, slow ones not counted. With those, and what else needs one, they"
        " fit into the 1,024 open files that Lambda allows.",
    )
    shards_per_poller: int = Field(
        64, ge=1, le=MAX_SHARDS_PER_POLLER, description="Shards of one invocation; for the others it invokes itself."
    )
    deadline_margin_seconds: Seconds = Field(
        5.0, description="How long before Lambda's own deadline the poller has drained and given its shards back."
    )
    stage: str = Field("dev", min_length=1, max_length=64, description="Dimension of the metrics, with the function.")
    event_bus: str = Field(
        "default", min_length=1, max_length=256, description="EventBridge bus for the events of timers that fail."
    )


class OutboxSettings(LambdaSettings, OutboxTuning):
    """The outbox on Lambda."""

    event_publishers: Annotated[str, AfterValidator(checked_by(read_publishers))] = Field(
        "webhook,eventbridge",
        description="Where events of service calls go: `webhook` (those that tenants set), `eventbridge`, `log`,"
        " comma separated.",
    )
    stage: str = Field("dev", min_length=1, max_length=64, description="Dimension of the metrics, with the function.")
    sweep_after_seconds: Seconds = Field(
        120.0,
        description="Age at which an event that still waits is published by the schedule instead of the stream.",
    )


class WorkerSettings(LocalEgressSettings, EngineTuning, LocalEvents, LocalHttp, DispatcherTuning, LocalKeySettings):
    """``duetime worker``."""

    metrics_port: int = Field(
        0,
        ge=0,
        le=65_535,
        description="Port for Prometheus's GET /metrics; 0 serves none. `serve` has it on its own.",
    )
    metrics_host: str = Field("127.0.0.1", min_length=1, description="Address for GET /metrics.")


class ClockKind(StrEnum):
    REAL = "real"
    VIRTUAL = "virtual"


def _check_start(text: str) -> str:
    """``text``; ``ValueError`` when it is neither empty nor an instant."""
    if text:
        parse_instant(text)
    return text


class LocalSettings(
    LocalEgressSettings, EngineTuning, ApiTuning, LocalEvents, LocalHttp, DispatcherTuning, LocalKeySettings
):
    """``duetime serve``."""

    host: str = Field("127.0.0.1", min_length=1, description="Address to listen on.")
    port: int = Field(8080, ge=0, le=65_535, description="Port to listen on; 0 takes a free one.")
    workers: int = Field(1, ge=1, le=64, description="Pollers, each in a process of its own; they share the shards.")
    auth: bool = Field(
        False, description="Whether requests need an API key. `duetime keys create --store` makes the first one."
    )
    auth_cache_seconds: float = Field(
        5.0,
        ge=0,
        le=300,
        allow_inf_nan=False,
        description="How long a valid API key is cached, and so the longest that a deleted one works.",
    )
    open_to_network: bool = Field(
        False,
        description="Whether to listen where other machines can reach it although no API key is required.",
    )
    clock: Annotated[ClockKind, AnyCase] = Field(
        ClockKind.REAL,
        description="`virtual` is for tests: time stands still until POST /v1/clock/advance moves it, the store is in"
        " memory (docs/testing.md).",
    )
    start: Annotated[str, AfterValidator(_check_start)] = Field(
        "", description="When virtual time begins, like 2026-01-01T00:00:00Z. Empty: now."
    )

    @property
    def start_at(self) -> datetime | None:
        return parse_instant(self.start) if self.start else None


def _check_given_tenant(tenant: str) -> str:
    return check_tenant(tenant) if tenant else ""


class DirectSettings(LocalEgressSettings, ApiTuning, LocalKeySettings):
    """Commands with ``--store``: the API on a store, without a server."""


class ClientSettings(Settings):
    """Commands: clients of a server's API."""

    log_level: Annotated[LogLevel, AnyCase] = Field(LogLevel.WARNING, description="Least severity that is logged.")
    url: str = Field("http://127.0.0.1:8080", min_length=1, description="URL of the server.")
    tenant: Annotated[str, AfterValidator(_check_given_tenant)] = Field(
        "", description="The tenant, where the API key does not say it."
    )
    api_key: str = Field(
        "", repr=False, description="API key, where the server asks for one. By variable only, since it is a secret."
    )


ENTRY_POINTS: tuple[type[Settings], ...] = (
    LocalSettings,
    WorkerSettings,
    StoreSettings,
    LocalKeySettings,
    DirectSettings,
    ClientSettings,
    TimersApiSettings,
    ServiceCallsApiSettings,
    PollerSettings,
    OutboxSettings,
    AuthorizerSettings,
)

S = TypeVar("S", bound=Settings)


def variable(field: str) -> str:
    """``lease_seconds`` -> ``DUETIME_LEASE_SECONDS``."""
    return ENV_PREFIX + field.upper()


def option(field: str) -> str:
    """``lease_seconds`` -> ``--lease-seconds``."""
    return "--" + field.replace("_", "-")


def load_settings(
    model: type[S], given: Mapping[str, object] | None = None, environ: Mapping[str, str] | None = None
) -> S:
    """``model`` from the options ``given`` (None: not given), else from the environment, else by default.

    Raises ``InvalidSettings`` that names the option or variable at fault, and never its value.
    """
    options = {name: value for name, value in (given or {}).items() if value is not None}
    variables = os.environ if environ is None else environ
    values = {name: text for name in model.model_fields if (text := variables.get(variable(name)))}
    try:
        return model.model_validate(values | options)
    except ValidationError as error:
        reasons = [_reason(str(detail["loc"][0]), message_of(detail), options) for detail in error.errors()]
        raise InvalidSettings("; ".join(reasons)) from None


def _reason(field: str, message: str, options: Mapping[str, object]) -> str:
    name = option(field) if field in options else variable(field)
    return f"{name}: {message}"


def child_environment(settings: Settings) -> dict[str, str]:
    """The environment for a process that shall have the same settings. (Arguments would show secrets in ``ps``.)"""
    return {**os.environ, **{variable(name): str(value) for name, value in settings if value is not None}}


def unknown_variables(environ: Mapping[str, str] | None = None) -> list[str]:
    """Variables that begin like ours and that no entry point reads: a typing error, most likely."""
    known = {variable(field) for model in ENTRY_POINTS for field in model.model_fields}
    variables = os.environ if environ is None else environ
    return sorted(name for name in variables if name.startswith(ENV_PREFIX) and name not in known)
