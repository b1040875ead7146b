"""Defines settings that several entry points share. ``runtime.settings`` has the entry points."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields as dataclass_fields
from dataclasses import replace
from enum import StrEnum
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from duetime.calls.message_log import DEFAULT_MAX_BODY_BYTES, LogRules
from duetime.delivery.egress import LOOPBACK, EgressPolicy, parse_cidrs, parse_hosts
from duetime.domain.call_steps import CallRules
from duetime.domain.ids import check_namespace
from duetime.domain.name_patterns import parse_name_patterns
from duetime.domain.namespaces import DEFAULT_NUM_SHARDS, MAX_NUM_SHARDS
from duetime.domain.redaction import DEFAULT_FIELDS, DEFAULT_HEADERS, RedactionRules
from duetime.domain.targets import parse_allowed
from duetime.domain.times import MAX_DURATION_SECONDS
from duetime.engine.settings import SKEW_MARGIN_SECONDS, EngineSettings
from duetime.runtime.logs import LogFormat, LogLevel
from duetime.stores.kinds import levels_in_words

_ENGINE = EngineSettings()


class EventPublisherName(StrEnum):
    WEBHOOK = "webhook"
    EVENTBRIDGE = "eventbridge"
    LOG = "log"


Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Retention = Annotated[float, Field(gt=0, le=MAX_DURATION_SECONDS, allow_inf_nan=False)]
_ORIGIN = re.compile(r"https?://(?:\[[0-9a-f:.]{2,45}\]|[a-z0-9._-]{1,253})(?::[1-9][0-9]{0,4})?")
_IMPLIED_PORT = re.compile(r"http://.*:80|https://.*:443")
AnyCase = BeforeValidator(lambda value: value.lower() if isinstance(value, str) else value)


def _check_hook_url(url: str) -> str:
    """Return ``url``; raise ``ValueError``, which does not show it, if it is not an http URL. Empty: no hook."""
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_usable = False
    if url and not (is_usable and url.isascii() and url.isprintable() and " " not in url):
        raise ValueError("must be an http or https URL")
    return url


def _check_public_url(url: str) -> str:
    """Return ``url`` without slashes at its end, since paths follow it."""
    _check_hook_url(url)
    if not set("?#@").isdisjoint(url):  # each receiver gets it
        raise ValueError("must be an http or https URL without a query and without a user")
    if not set('"\\').isdisjoint(url):
        raise ValueError("must be an http or https URL")
    return url.rstrip("/")


_MAX_METRICS_NAMESPACES = 20


def _read_namespaces(text: str) -> tuple[str, ...]:
    """Parse a comma separated list of namespaces. Raises ``ValueError``."""
    names = tuple(check_namespace(name.strip()) for name in text.split(",")) if text else ()
    if len(names) > _MAX_METRICS_NAMESPACES:
        raise ValueError(f"must name {_MAX_METRICS_NAMESPACES} namespaces or less")
    return names


def _check_store_url(url: str) -> str:
    """Return ``url``; raise ``ValueError`` if log redaction could not find the end of its password."""
    scheme, _, rest = url.partition("://")
    if scheme != "sqlite" and any(character.isspace() for character in rest.rpartition("@")[0]):
        raise ValueError("must not have white space before the host: percent-encode white space in a password")
    return url


def checked_by(parse: Callable[[str], object]) -> Callable[[str], str]:
    """Validate by ``parse``, which raises ``ValueError``, and keep the text, so that a child process can get it."""

    def check(text: str) -> str:
        parse(text)
        return text

    return check


class Settings(BaseModel):
    """Settings of all entry points. Frozen. Errors show no values, ``repr`` shows no secrets."""

    # Only the model of the entry point is built: each cold start pays for what is.
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, defer_build=True)

    log_level: Annotated[LogLevel, AnyCase] = Field(default=LogLevel.INFO, description="Lowest level that is logged.")
    log_format: Annotated[LogFormat, AnyCase] = Field(
        default=LogFormat.TEXT, description="Log text for people, or one JSON object per line."
    )


class StoreSettings(Settings):
    """Settings of ``duetime init``, and of every entry point with a store."""

    store: Annotated[str, AfterValidator(_check_store_url)] = Field(
        default="sqlite:///data/duetime.db",
        repr=False,  # the URL of a database server carries its password
        min_length=1,
        description="URL of the store, like sqlite:///path.db or postgresql://user@host/database (docs/stores.md)."
        f" {levels_in_words()} Use the variable for a URL with a password: other users of the machine can see the"
        " arguments of a command.",
    )


class LambdaSettings(StoreSettings):
    """Settings of every Lambda function. The store has no default."""

    log_format: Annotated[LogFormat, AnyCase] = Field(
        default=LogFormat.JSON, description="Log text for people, or one JSON object per line."
    )
    store: Annotated[str, AfterValidator(_check_store_url)] = Field(
        repr=False, min_length=1, description="URL of the store: dynamodb://table, in the same region."
    )


class KeySettings(StoreSettings):
    """Settings of every entry point that encrypts or decrypts signing secrets."""

    kms_key_id: str = Field(
        default="", description="AWS KMS key (id, ARN or alias) that encrypts signing secrets. Empty: none."
    )


class LocalKeySettings(KeySettings):
    """Settings of commands that can encrypt with a key file. ``duetime import``."""

    key_file: str = Field(
        default="",
        description="File of the key that encrypts signing secrets, created when needed. Empty: `duetime.key` beside"
        " an SQLite file.",
    )


class EgressSettings(StoreSettings):
    """Settings of every entry point that accepts or calls callback URLs. By default, public addresses only, and no
    targets."""

    egress_allow_cidrs: Annotated[str, AfterValidator(checked_by(parse_cidrs))] = Field(
        default="", description="Non-public address blocks (CIDR) that callbacks may go to, comma separated."
    )
    egress_allow_hosts: Annotated[str, AfterValidator(checked_by(parse_hosts))] = Field(
        default="", description="Hosts whose addresses may be non-public, exact or *.suffix, comma separated."
    )
    egress_https_only: bool = Field(default=False, description="Require https for callback URLs.")
    allowed_targets: Annotated[str, AfterValidator(checked_by(parse_allowed))] = Field(
        default="",
        description="ARNs of queues, topics, buses, functions and state machines that timers and service calls may"
        " deliver to, exact or with * at the end, comma separated.",
    )
    egress_allow_loopback: bool = Field(
        default=False, description="Allow callbacks to loopback addresses, 127.0.0.0/8 and ::1."
    )

    def egress_policy(self) -> EgressPolicy:
        return EgressPolicy(
            allow_cidrs=parse_cidrs(self.egress_allow_cidrs) + (LOOPBACK if self.egress_allow_loopback else ()),
            allow_hosts=parse_hosts(self.egress_allow_hosts),
            https_only=self.egress_https_only,
            allow_targets=parse_allowed(self.allowed_targets),
        )


class LocalEgressSettings(EgressSettings):
    """On a developer's machine receivers are usually local, so loopback is allowed by default."""

    egress_allow_loopback: bool = Field(
        default=True, description="Allow callbacks to loopback addresses, 127.0.0.0/8 and ::1."
    )


class CallTuning(StoreSettings):
    """Settings of every entry point that stores or changes service calls."""

    call_retention_seconds: float = Field(
        default=30 * 86_400.0,
        ge=0,
        le=MAX_DURATION_SECONDS,
        allow_inf_nan=False,
        description="How long a finished service call without a star is kept. 0: for ever.",
    )
    default_num_shards: int = Field(
        default=DEFAULT_NUM_SHARDS,
        ge=1,
        le=MAX_NUM_SHARDS,
        description="Default number of shards of a namespace, and of a tenant's service calls.",
    )

    def call_rules(self) -> CallRules:
        return CallRules(retention_seconds=self.call_retention_seconds or None)


class TimerTuning(StoreSettings):
    """Settings of every entry point that ends timers."""

    fired_retention_seconds: float = Field(
        default=_ENGINE.fired_retention_seconds,
        ge=0,
        le=MAX_DURATION_SECONDS,
        allow_inf_nan=False,
        description="How long a fired or cancelled timer stays readable. 0: it is gone at once, and a create that is"
        " repeated after it fired makes a new one.",
    )


class RedactionTuning(StoreSettings):
    """Settings of every entry point that shows or logs requests of clients."""

    call_log_redact_headers: Annotated[str, AfterValidator(checked_by(parse_name_patterns))] = Field(
        default=DEFAULT_HEADERS,
        description="Headers whose values are redacted in the execution log and for readers: names, * for any text,"
        " ! before an exception, comma separated. `none`: none.",
    )
    call_log_redact_fields: Annotated[str, AfterValidator(checked_by(parse_name_patterns))] = Field(
        default=DEFAULT_FIELDS,
        description="The same for query parameters, form fields and JSON members.",
    )

    def redaction_rules(self) -> RedactionRules:
        return RedactionRules(
            headers=parse_name_patterns(self.call_log_redact_headers),
            fields=parse_name_patterns(self.call_log_redact_fields),
        )


class ExecutionTuning(CallTuning, RedactionTuning):
    """Settings of every entry point that executes service calls."""

    call_watchdog_grace_seconds: Seconds = Field(
        default=CallRules().watchdog_grace_seconds,
        description="How long after its timeout an unreported execution fails.",
    )
    call_log_bodies: bool = Field(default=True, description="Keep bodies in the execution log.")
    call_log_max_body_bytes: int = Field(
        default=DEFAULT_MAX_BODY_BYTES,
        ge=0,
        le=DEFAULT_MAX_BODY_BYTES,
        description="Bytes of a body that the execution log keeps.",
    )

    def call_rules(self) -> CallRules:
        return replace(super().call_rules(), watchdog_grace_seconds=self.call_watchdog_grace_seconds)

    def log_rules(self) -> LogRules:
        rules = self.redaction_rules()
        return LogRules(
            headers=rules.headers,
            fields=rules.fields,
            keeps_bodies=self.call_log_bodies,
            max_body_bytes=self.call_log_max_body_bytes,
        )


def _parse_origins(text: str) -> frozenset[str]:
    """Parse origins as browsers send them, comma separated. Raises ``ValueError`` that shows none of them."""
    origins = frozenset(item.strip().lower() for item in text.split(",")) if text.strip() else frozenset()
    for origin in origins:
        if _ORIGIN.fullmatch(origin) is None or _IMPLIED_PORT.fullmatch(origin):
            raise ValueError(
                "must be origins like https://app.example or http://localhost:3000, comma separated: no path, no *,"
                " no port that the scheme implies"
            )
    return origins


class HttpTuning(StoreSettings):
    """Settings of every entry point that serves the API over HTTP."""

    auth_cache_seconds: float = Field(
        default=5.0,
        ge=0,
        le=300,
        allow_inf_nan=False,
        description="How long a valid API key is cached. A deleted key works at most this long.",
    )
    cors_origins: Annotated[str, AfterValidator(checked_by(_parse_origins))] = Field(
        default="",
        max_length=1024,
        description="Origins of pages that may use the API in a browser, like https://app.example, comma separated."
        " Each is exact; by default none may.",
    )

    @property
    def allowed_origins(self) -> frozenset[str]:
        return _parse_origins(self.cors_origins)


class ApiTuning(KeySettings, EgressSettings, TimerTuning, CallTuning, RedactionTuning):
    """Settings of every entry point with the API."""


class EngineTuning(KeySettings, EgressSettings, TimerTuning, ExecutionTuning):
    """Settings of every entry point with a poller."""

    lease_seconds: float = Field(
        default=_ENGINE.lease_seconds,
        gt=2 * SKEW_MARGIN_SECONDS,
        allow_inf_nan=False,
        description="Time after which other pollers take over the shards of one that died.",
    )
    poll_interval_seconds: Seconds = Field(
        default=_ENGINE.poll_interval_seconds,
        description="Time within which timers are seen that another machine or another `worker` stores.",
    )
    max_in_flight: int = Field(
        default=_ENGINE.max_in_flight, ge=1, le=100_000, description="Callbacks in flight, not counting slow ones."
    )
    max_slow_in_flight: int | None = Field(
        default=None,
        ge=0,
        le=100_000,
        description="Slow callbacks in flight (longer than 250 ms), in addition. None: 4/5 of max_in_flight.",
    )
    max_in_flight_per_namespace: int | None = Field(
        default=None,
        ge=1,
        le=100_000,
        description="Callbacks in flight of one namespace, with slow ones. None: 4/5 of max_in_flight.",
    )
    max_in_flight_per_host: int | None = Field(
        default=None,
        ge=1,
        le=100_000,
        description="Callbacks in flight to one host, with slow ones; 3/4 of them for one namespace. None: 1/2 of"
        " max_in_flight.",
    )
    initial_window: int = Field(
        default=_ENGINE.initial_window,
        ge=1,
        le=100_000,
        description="Callbacks in flight to a host before its first response; each response adds one. A namespace"
        " with its own maxInFlight starts with that.",
    )
    breaker_failures: int = Field(
        default=_ENGINE.breaker_failures,
        ge=1,
        le=100_000,
        description="Consecutive failures of a host (no response; 502, 503 or 504 for 1 s) that open its breaker.",
    )
    breaker_pause_seconds: Seconds = Field(
        default=_ENGINE.breaker_pause_seconds,
        description="Pause before a host with an open breaker is tried again; doubled each time it fails.",
    )
    breaker_max_pause_seconds: Seconds = Field(
        default=_ENGINE.breaker_max_pause_seconds, description="The longest such pause."
    )
    drain_seconds: Seconds = Field(
        default=_ENGINE.drain_seconds, description="Time that a stop waits for callbacks in flight."
    )
    failed_retention_seconds: Retention = Field(
        default=_ENGINE.failed_retention_seconds,
        description="How long a failed timer stays readable and can be redriven.",
    )
    public_url: Annotated[str, AfterValidator(_check_public_url)] = Field(
        default="",
        max_length=1024,
        description="URL at which receivers find the API. Callbacks then have a signed `ackUrl` for long work.",
    )
    metrics_namespaces: Annotated[str, AfterValidator(checked_by(_read_namespaces))] = Field(
        default="",
        description="Namespaces with metrics of their own: lag, missed and skipped occurrences. Up to 20, comma"
        " separated.",
    )
    attempt_excerpt_bytes: int = Field(
        default=_ENGINE.attempt_excerpt_bytes,
        ge=0,
        le=2048,
        description="Bytes of a response body that the attempt log keeps; 1/4 of that for a success; 0: none.",
    )

    def engine_settings(self, **more: object) -> EngineSettings:
        """Make the engine's settings of these fields and ``more``."""
        names = {field.name for field in dataclass_fields(EngineSettings)}
        given = {name: value for name, value in self.model_dump().items() if name in names and value is not None}
        four_fifths = max(1, self.max_in_flight * 4 // 5)
        given["metrics_namespaces"] = _read_namespaces(self.metrics_namespaces)
        given.setdefault("max_slow_in_flight", four_fifths)
        given.setdefault("max_in_flight_per_namespace", four_fifths)
        given.setdefault("max_in_flight_per_host", max(1, self.max_in_flight // 2))
        return EngineSettings(**(given | more))


def read_publishers(text: str) -> tuple[EventPublisherName, ...]:
    """Parse a comma separated list of publishers; ``none`` alone is none. Raises ``ValueError``."""
    names = [name.strip().lower() for name in text.split(",")]
    if names == ["none"]:
        return ()
    if len(set(names)) != len(names) or not set(names) <= set(EventPublisherName):
        raise ValueError(f"must be none, or some of {', '.join(EventPublisherName)}, comma separated")
    return tuple(map(EventPublisherName, names))


class OutboxTuning(StoreSettings):
    """Settings of every entry point that publishes events of service calls."""

    event_publishers: Annotated[str, AfterValidator(checked_by(read_publishers))] = Field(
        default="webhook,log",
        description="Publishers of the events of service calls: `webhook` (of the tenant), `log`, `eventbridge`;"
        " comma separated. `none`: this process publishes nothing, so another one must.",
    )
    event_bus: str = Field(
        default="default", min_length=1, max_length=256, description="EventBridge bus for `eventbridge`."
    )

    @property
    def publishers(self) -> tuple[EventPublisherName, ...]:
        return read_publishers(self.event_publishers)


class RelayTuning(OutboxTuning):
    """Settings of commands that publish events."""

    event_retention_seconds: Retention = Field(
        default=7 * 86_400.0,
        description="How long published events stay readable. DynamoDB uses `event_retention` in its URL instead.",
    )


class LocalHttp(StoreSettings):
    """Settings of servers on one machine that require no API key."""

    allowed_hosts: Annotated[str, AfterValidator(checked_by(parse_hosts))] = Field(
        default="",
        description="Host names accepted by a server without API keys, in addition to addresses and localhost: exact"
        " or *.suffix, comma separated.",
    )


class LocalEvents(StoreSettings):
    """Settings for the events of failed timers on one machine, which are logged, too."""

    failed_hook_url: Annotated[str, AfterValidator(_check_hook_url)] = Field(
        default="",
        repr=False,  # it may carry a secret
        max_length=2048,
        description="URL that gets a POST for each event of timers and schedules. There is no option, since it may"
        " carry a secret.",
    )
