"""Defines the settings of every entry point, and reads them from the environment (nothing else does).

A field ``lease_seconds`` is the variable ``DUETIME_LEASE_SECONDS`` and, where a command has it, the option
``--lease-seconds``. An option wins over the environment, the environment over ``duetime.toml``, and that over the
default. An empty variable counts as absent. ``docs/configuration.md`` is made from these models
(``scripts/write_configuration.py``).

pydantic-settings would replace one line of ``load_settings``: the messages, which name the option or the variable and
never a value, stay our own, and importing it adds a third to this module's import time, which each cold start pays.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import AfterValidator, Field, ValidationError

from duetime.api.http.validation_messages import message_of
from duetime.domain.errors import InvalidSettings
from duetime.domain.tenants import check_tenant
from duetime.domain.timers import DEFAULT_CALLBACK_TIMEOUT_SECONDS
from duetime.domain.times import parse_instant
from duetime.engine.settings import SKEW_MARGIN_SECONDS
from duetime.runtime.logs import LogLevel
from duetime.runtime.tuning import (
    AnyCase,
    ApiTuning,
    EngineTuning,
    HttpTuning,
    LambdaSettings,
    LocalEgressSettings,
    LocalEvents,
    LocalHttp,
    LocalKeySettings,
    OutboxTuning,
    RelayTuning,
    Seconds,
    Settings,
    StoreSettings,
    checked_by,
    read_publishers,
)

ENV_PREFIX = "DUETIME_"
FILE = "duetime.toml"
"""Of the working directory: settings of servers and of commands that use a store, under the names of the fields."""
MAX_SHARDS_PER_POLLER = 4096


class Sleep(StrEnum):
    AUTO = "auto"
    NEVER = "never"


class DrainSettings(LambdaSettings):
    """Lambda functions that accept or call callback URLs."""

    drain_seconds: float = Field(
        default=120.0,
        # The default timeout is accepted everywhere. Twice as much, and the last writes, fit into a poller's life.
        ge=DEFAULT_CALLBACK_TIMEOUT_SECONDS,
        le=400,
        allow_inf_nan=False,
        description="Time that a poller at its end waits for callbacks in flight, so that none is sent again because"
        " its poller ended. It is the longest timeout that timers and schedules may have.",
    )


class WakingSettings(LambdaSettings):
    """Lambda functions that store timers."""

    poller_function: str = Field(
        default="",
        max_length=2048,
        description="Lambda function of the poller (name or ARN), invoked when the pollers sleep and a timer is due"
        " soon. Empty: they never sleep.",
    )


class TimerEventSettings(LambdaSettings):
    """Lambda functions that publish events of timers."""

    event_bus: str = Field(
        default="default",
        min_length=1,
        max_length=256,
        description="EventBridge bus for the events of timers and schedules.",
    )


class TimersApiSettings(WakingSettings, DrainSettings, TimerEventSettings, HttpTuning, ApiTuning):
    """The timers API on Lambda."""


class ServiceCallsApiSettings(WakingSettings, HttpTuning, ApiTuning):
    """The API of service calls on Lambda."""


class PollerSettings(DrainSettings, TimerEventSettings, EngineTuning):
    """The poller on Lambda."""

    max_in_flight: int = Field(
        default=400,
        ge=1,
        le=100_000,
        description="Callbacks in flight, not counting slow ones. The default fits into the 1,024 open files that"
        " Lambda allows.",
    )
    shards_per_poller: int = Field(
        default=64,
        ge=1,
        le=MAX_SHARDS_PER_POLLER,
        description="Shards of one invocation. It invokes itself for further ones.",
    )
    lease_seconds: float = Field(
        default=30.0,
        gt=2 * SKEW_MARGIN_SECONDS,
        allow_inf_nan=False,
        description="Time after which other pollers may take over the shards of one that died.",
    )
    sleep: Annotated[Sleep, AnyCase] = Field(
        default=Sleep.AUTO,
        description="`auto`: the pollers end while nothing is due for 5 minutes, and functions that store a timer"
        " start them. `never`: one always runs.",
    )
    deadline_margin_seconds: Seconds = Field(
        default=5.0, description="The poller drains and releases its shards this long before Lambda's own deadline."
    )
    stage: str = Field(
        default="dev", min_length=1, max_length=64, description="Dimension of the metrics, with the function."
    )


class OutboxSettings(WakingSettings, OutboxTuning):
    """The outbox on Lambda."""

    event_publishers: Annotated[str, AfterValidator(checked_by(read_publishers))] = Field(
        default="webhook,eventbridge",
        description="Publishers of the events of service calls: `webhook` (of the tenant), `eventbridge`, `log`;"
        " comma separated.",
    )
    stage: str = Field(
        default="dev", min_length=1, max_length=64, description="Dimension of the metrics, with the function."
    )
    sweep_after_seconds: Seconds = Field(
        default=120.0,
        description="Age at which a pending event is published by the schedule instead of the stream.",
    )


class WorkerSettings(LocalEgressSettings, EngineTuning, LocalEvents, LocalHttp, RelayTuning, LocalKeySettings):
    """``duetime worker``."""

    metrics_port: int = Field(
        default=0,
        ge=0,
        le=65_535,
        description="Port of GET /metrics for Prometheus; 0: none. `serve` has /metrics on its own port.",
    )
    metrics_host: str = Field(default="127.0.0.1", min_length=1, description="Address of GET /metrics.")


class ClockKind(StrEnum):
    REAL = "real"
    VIRTUAL = "virtual"


def _check_start(text: str) -> str:
    """Return ``text``; raise ``ValueError`` unless it is empty or an instant."""
    if text:
        parse_instant(text)
    return text


class LocalSettings(
    LocalEgressSettings, EngineTuning, HttpTuning, ApiTuning, LocalEvents, LocalHttp, RelayTuning, LocalKeySettings
):
    """``duetime serve``."""

    host: str = Field(default="127.0.0.1", min_length=1, description="Address to listen on.")
    port: int = Field(default=8080, ge=0, le=65_535, description="Port to listen on; 0: a free one.")
    workers: int = Field(
        default=0,
        ge=0,
        le=64,
        description="Pollers, one process each. They share the shards. 0: two where there are two cores, but one"
        " for a store in memory.",
    )
    auth: bool = Field(
        default=False, description="Require an API key. `duetime keys create --store` creates the first one."
    )
    open_to_network: bool = Field(
        default=False,
        description="Allow an address that other machines can reach although no API key is required.",
    )
    clock: Annotated[ClockKind, AnyCase] = Field(
        default=ClockKind.REAL,
        description="`virtual` is for tests: time stands still until POST /v1/clock/advance moves it, and the store"
        " is in memory (docs/testing.md).",
    )
    start: Annotated[str, AfterValidator(_check_start)] = Field(
        default="", description="Start of virtual time, like 2026-01-01T00:00:00Z. Empty: now."
    )

    @property
    def start_at(self) -> datetime | None:
        return parse_instant(self.start) if self.start else None


def _check_given_tenant(tenant: str) -> str:
    return check_tenant(tenant) if tenant else ""


class DirectSettings(LocalEgressSettings, ApiTuning, LocalKeySettings):
    """Commands with ``--store``, which use a store without a server."""


class ClientSettings(Settings):
    """Commands that call a server."""

    log_level: Annotated[LogLevel, AnyCase] = Field(
        default=LogLevel.WARNING, description="Lowest level that is logged."
    )
    url: str = Field(default="http://127.0.0.1:8080", min_length=1, description="URL of the server.")
    tenant: Annotated[str, AfterValidator(_check_given_tenant)] = Field(
        default="", description="Tenant. Empty: that of the API key."
    )
    api_key: str = Field(
        default="",
        repr=False,
        description="API key, if the server requires one. There is no option, since it is a secret.",
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
)

S = TypeVar("S", bound=Settings)


def variable(field: str) -> str:
    """Name the variable of a field: ``lease_seconds`` -> ``DUETIME_LEASE_SECONDS``."""
    return ENV_PREFIX + field.upper()


def option(field: str) -> str:
    """Name the option of a field: ``lease_seconds`` -> ``--lease-seconds``."""
    return "--" + field.replace("_", "-")


def load_settings(
    model: type[S], given: Mapping[str, object] | None = None, environ: Mapping[str, str] | None = None
) -> S:
    """Load ``model`` from the options ``given`` (None: not given), else from the environment, else from the file
    ``duetime.toml`` of the working directory, else from defaults.

    Raises ``InvalidSettings``, which names the option, variable or member of the file at fault, never its value.
    """
    options = {name: value for name, value in (given or {}).items() if value is not None}
    variables = os.environ if environ is None else environ
    values = {name: text for name in model.model_fields if (text := variables.get(variable(name)))}
    filed = _file() if environ is None and _reads_file(model) else {}
    filed = {name: value for name, value in filed.items() if name in model.model_fields}
    try:
        return model.model_validate(filed | values | options)
    except ValidationError as error:
        reasons = []
        for detail in error.errors():
            field = str(detail["loc"][0])
            is_filed = field in filed and field not in values
            name = option(field) if field in options else f"{FILE}: {field}" if is_filed else variable(field)
            reasons.append(f"{name}: {message_of(detail)}")
        raise InvalidSettings("; ".join(reasons)) from None


def _reads_file(model: type[Settings]) -> bool:
    """Tell whether ``duetime.toml`` counts.

    Functions have no working directory. A command that calls a server may run in anyone's, whose file must not say
    where the API key goes.
    """
    return not issubclass(model, LambdaSettings | ClientSettings)


def _file() -> dict[str, object]:
    """Read ``duetime.toml``. Raises ``InvalidSettings`` for what is not TOML, and for unknown members."""
    try:
        text = Path(FILE).read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise InvalidSettings(f"{FILE} cannot be read: {error}") from None
    import tomllib  # no function reads a file

    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidSettings(f"{FILE} is not TOML: {error}") from None
    known = {field for model in ENTRY_POINTS if _reads_file(model) for field in model.model_fields}
    if unknown := sorted(found.keys() - known):
        raise InvalidSettings(f"{FILE}: {', '.join(unknown)}: no such setting")
    return found


def child_environment(settings: Settings) -> dict[str, str]:
    """Return the environment of a child process with the same settings. (Arguments would show secrets in ``ps``.)"""
    return {**os.environ, **{variable(name): str(value) for name, value in settings if value is not None}}


def unknown_variables(environ: Mapping[str, str] | None = None) -> list[str]:
    """Return variables with our prefix that no entry point reads: typing errors, most likely."""
    known = {variable(field) for model in ENTRY_POINTS for field in model.model_fields}
    variables = os.environ if environ is None else environ
    return sorted(name for name in variables if name.startswith(ENV_PREFIX) and name not in known)
