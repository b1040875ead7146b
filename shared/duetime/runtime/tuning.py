"""The parts that settings are made of: what several entry points have alike (``runtime.settings`` has those)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields as dataclass_fields
from dataclasses import replace
from enum import StrEnum
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from duetime.calls.redaction import DEFAULT_MAX_BODY_BYTES, LogRules
from duetime.delivery.egress import LOOPBACK, EgressPolicy, parse_cidrs, parse_hosts
from duetime.domain.call_steps import CallRules
from duetime.domain.errors import InvalidSettings
from duetime.domain.name_patterns import parse_name_patterns
from duetime.domain.namespaces import DEFAULT_NUM_SHARDS, MAX_NUM_SHARDS
from duetime.domain.redaction import DEFAULT_FIELDS, DEFAULT_HEADERS, RedactionRules
from duetime.domain.times import MAX_DURATION_SECONDS
from duetime.engine.settings import EngineSettings
from duetime.runtime.logs import LogFormat, LogLevel
from duetime.stores.kinds import levels_in_words

_ENGINE = EngineSettings()


class EventPublisherName(StrEnum):
    WEBHOOK = "webhook"
    EVENTBRIDGE = "eventbridge"
    LOG = "log"


Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Retention = Annotated[float, Field(gt=0, le=MAX_DURATION_SECONDS, allow_inf_nan=False)]
AnyCase = BeforeValidator(lambda value: value.lower() if isinstance(value, str) else value)


def _check_hook_url(url: str) -> str:
    """``url``; ``ValueError`` (which does not show it) when nothing can be posted there. Empty: no hook."""
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_usable = False
    if url and not (is_usable and url.isascii() and url.isprintable() and " " not in url):
        raise ValueError("must be an http or https URL")
    return url


def _check_store_url(url: str) -> str:
    """``url``; ``ValueError`` for one whose password could not be told from the text around it in a log."""
    scheme, _, rest = url.partition("://")
    if scheme != "sqlite" and any(character.isspace() for character in rest.rpartition("@")[0]):
        raise ValueError("must not have white space before the host: percent-encode it in a password")
    return url


def checked_by(parse: Callable[[str], object]) -> Callable[[str], str]:
    """The text stays as it is, so that it can be handed on to a child; ``parse`` raises ``ValueError``."""

    def check(text: str) -> str:
        parse(text)
        return text

    return check


class Settings(BaseModel):
    """What all entry points have. Frozen; never shows a value in an error or a ``repr`` of a secret field."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    log_level: Annotated[LogLevel, AnyCase] = Field(LogLevel.INFO, description="Least severity that is logged.")
    log_format: Annotated[LogFormat, AnyCase] = Field(
        LogFormat.TEXT, description="One JSON object per line, or text for people."
    )


class StoreSettings(Settings):
    """``duetime init``, and what every entry point with a store has."""

    store: Annotated[str, AfterValidator(_check_store_url)] = Field(
        "sqlite:///data/duetime.db",
        repr=False,  # the URL of a database server carries its password
        min_length=1,
        description="URL of the store, like sqlite:///path.db or postgresql://user@host/database (docs/stores.md)."
        f" {levels_in_words()} By variable where it has a password, since others on the machine can see what a"
        " command is called with.",
    )


class LambdaSettings(StoreSettings):
    """What every Lambda function has. There is no store that it could have by default."""

    log_format: Annotated[LogFormat, AnyCase] = Field(
        LogFormat.JSON, description="One JSON object per line, or text for people."
    )
    store: Annotated[str, AfterValidator(_check_store_url)] = Field(
        repr=False, min_length=1, description="URL of the store: dynamodb://table, in the own region."
    )


class KeySettings(StoreSettings):
    """Settings of every entry point that encrypts or decrypts signing secrets."""

    kms_key_id: str = Field(
        "", description="Key of AWS KMS (id, ARN or alias) that encrypts signing secrets. Empty: none."
    )


class LocalKeySettings(KeySettings):
    """What the commands have beside KMS. ``duetime import``."""

    key_file: str = Field(
        "",
        description="File with the key that encrypts signing secrets, created when needed. Empty: `duetime.key`"
        " beside an SQLite file.",
    )


class EgressSettings(StoreSettings):
    """What every entry point has that accepts callback URLs or calls them. Empty lists: public addresses only."""

    egress_allow_cidrs: Annotated[str, AfterValidator(checked_by(parse_cidrs))] = Field(
        "", description="Blocks of addresses that callbacks may go to although they are not public, comma separated."
    )
    egress_allow_hosts: Annotated[str, AfterValidator(checked_by(parse_hosts))] = Field(
        "", description="Hosts whose addresses need not be public, exact or *.suffix, comma separated."
    )
    egress_https_only: bool = Field(False, description="Whether callback URLs must be https.")
    egress_allow_loopback: bool = Field(
        False, description="Whether callbacks may go to this machine's own addresses, 127.0.0.0/8 and ::1."
    )

    def egress_policy(self) -> EgressPolicy:
        return EgressPolicy(
            allow_cidrs=parse_cidrs(self.egress_allow_cidrs) + (LOOPBACK if self.egress_allow_loopback else ()),
            allow_hosts=parse_hosts(self.egress_allow_hosts),
            https_only=self.egress_https_only,
        )


class LocalEgressSettings(EgressSettings):
    """On a machine of one's own a receiver is most often there too."""

    egress_allow_loopback: bool = Field(
        True, description="Whether callbacks may go to this machine's own addresses, 127.0.0.0/8 and ::1."
    )


class CallTuning(StoreSettings):
    """What every entry point has that changes service calls."""

    call_retention_seconds: float = Field(
        30 * 86_400.0,
        ge=0,
        le=MAX_DURATION_SECONDS,
        allow_inf_nan=False,
        description="How long a service call is kept after its end, unless it is starred. 0: for ever.",
    )

    def call_rules(self) -> CallRules:
        return CallRules(retention_seconds=self.call_retention_seconds or None)


class RedactionTuning(StoreSettings):
    """What every entry point has that shows or logs what clients gave."""

    call_log_redact_headers: Annotated[str, AfterValidator(checked_by(parse_name_patterns))] = Field(
        DEFAULT_HEADERS,
        description="Headers whose values are shown neither in the execution log nor to readers: names, * for"
        " anything, comma separated; `none` for none.",
    )
    call_log_redact_fields: Annotated[str, AfterValidator(checked_by(parse_name_patterns))] = Field(
        DEFAULT_FIELDS,
        description="The same for query parameters, and for fields of forms and members of JSON in bodies.",
    )

    def redaction_rules(self) -> RedactionRules:
        return RedactionRules(
            headers=parse_name_patterns(self.call_log_redact_headers),
            fields=parse_name_patterns(self.call_log_redact_fields),
        )


class ExecutionTuning(CallTuning, RedactionTuning):
    """What every entry point has that executes service calls."""

    call_watchdog_grace_seconds: Seconds = Field(
        CallRules().watchdog_grace_seconds,
        description="How long after its timeout an unreported execution becomes a failed one.",
    )
    call_log_bodies: bool = Field(True, description="Whether the execution log keeps bodies.")
    call_log_max_body_bytes: int = Field(
        DEFAULT_MAX_BODY_BYTES, ge=0, le=DEFAULT_MAX_BODY_BYTES, description="What it keeps of a body at most."
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


class ApiTuning(KeySettings, EgressSettings, CallTuning, RedactionTuning):
    """What every entry point with the API has."""

    default_num_shards: int = Field(
        DEFAULT_NUM_SHARDS,
        ge=1,
        le=MAX_NUM_SHARDS,
        description="Shards of a namespace that is created without a number of its own, and of a tenant's service"
        " calls.",
    )


class EngineTuning(KeySettings, EgressSettings, ExecutionTuning):
    """What every entry point with a poller has."""

    lease_seconds: float = Field(
        _ENGINE.lease_seconds,
        gt=2,
        allow_inf_nan=False,
        description="How long a shard stays with a poller that has died before another takes it over.",
    )
    poll_interval_seconds: Seconds = Field(
        _ENGINE.poll_interval_seconds,
        description="The longest that a timer stored by another process goes unseen.",
    )
    max_in_flight: int = Field(
        _ENGINE.max_in_flight, ge=1, le=100_000, description="Callbacks in flight, slow ones not counted."
    )
    max_slow_in_flight: int | None = Field(
        None,
        ge=0,
        le=100_000,
        description="Further callbacks in flight, each for longer than a quarter of a second. "
        "By default four fifths of max_in_flight.",
    )
    max_in_flight_per_namespace: int | None = Field(
        None,
        ge=1,
        le=100_000,
        description="Of one namespace, slow ones too. By default four fifths of max_in_flight.",
    )
    max_in_flight_per_host: int | None = Field(
        None,
        ge=1,
        le=100_000,
        description="To one host, fast and slow; a namespace has three quarters. By default half of max_in_flight.",
    )
    initial_window: int = Field(
        _ENGINE.initial_window,
        ge=1,
        le=100_000,
        description="Callbacks in flight to a host that has not responded yet; one more for each response. A"
        " namespace with a maxInFlight of its own begins with that.",
    )
    breaker_failures: int = Field(
        _ENGINE.breaker_failures,
        ge=1,
        le=100_000,
        description="Failures of a host in a row (no response; 502, 503, 504 for 1 s) that postpone its callbacks.",
    )
    breaker_pause_seconds: Seconds = Field(
        _ENGINE.breaker_pause_seconds,
        description="How long they are postponed before one is tried; doubled each time that it fails.",
    )
    breaker_max_pause_seconds: Seconds = Field(
        _ENGINE.breaker_max_pause_seconds, description="The longest such pause."
    )
    drain_seconds: Seconds = Field(
        _ENGINE.drain_seconds, description="How long a stop waits for callbacks in flight."
    )
    fired_retention_seconds: Retention = Field(
        _ENGINE.fired_retention_seconds, description="How long a fired timer stays readable."
    )
    failed_retention_seconds: Retention = Field(
        _ENGINE.failed_retention_seconds, description="How long a failed timer stays readable and can be redriven."
    )
    attempt_excerpt_bytes: int = Field(
        _ENGINE.attempt_excerpt_bytes,
        ge=0,
        le=2048,
        description="Bytes of a response that the attempt log keeps: a quarter of that of a success; 0 for none.",
    )

    def engine_settings(self, **more: object) -> EngineSettings:
        """The engine's settings as these fields and ``more`` have them. ``InvalidSettings`` when they disagree."""
        names = {field.name for field in dataclass_fields(EngineSettings)}
        given = {name: value for name, value in self.model_dump().items() if name in names and value is not None}
        four_fifths = max(1, self.max_in_flight * 4 // 5)
        given.setdefault("max_slow_in_flight", four_fifths)
        given.setdefault("max_in_flight_per_namespace", four_fifths)
        given.setdefault("max_in_flight_per_host", max(1, self.max_in_flight // 2))
        try:
            return EngineSettings(**(given | more))
        except ValueError as error:
            raise InvalidSettings(str(error)) from error


def read_publishers(text: str) -> tuple[EventPublisherName, ...]:
    """The publishers in a comma separated list; ``none`` alone is none. Raises ``ValueError``."""
    names = [name.strip().lower() for name in text.split(",")]
    if names == ["none"]:
        return ()
    if len(set(names)) != len(names) or not set(names) <= set(EventPublisherName):
        raise ValueError(f"must be none, or some of {', '.join(EventPublisherName)}, comma separated")
    return tuple(map(EventPublisherName, names))


class OutboxTuning(StoreSettings):
    """What every entry point has that publishes events of service calls."""

    event_publishers: Annotated[str, AfterValidator(checked_by(read_publishers))] = Field(
        "webhook,log",
        description="Where events of service calls go: `webhook` (those that tenants set), `log`, `eventbridge`,"
        " comma separated. `none`: this process publishes nothing, and another one must.",
    )
    event_bus: str = Field("default", min_length=1, max_length=256, description="EventBridge bus for `eventbridge`.")

    @property
    def publishers(self) -> tuple[EventPublisherName, ...]:
        return read_publishers(self.event_publishers)


class DispatcherTuning(OutboxTuning):
    """What the commands have that publish events."""

    event_retention_seconds: Retention = Field(
        7 * 86_400.0,
        description="How long published events stay readable; on DynamoDB `event_retention` in its URL counts.",
    )


class LocalHttp(StoreSettings):
    """How servers on one machine are called that ask for no API key."""

    allowed_hosts: Annotated[str, AfterValidator(checked_by(parse_hosts))] = Field(
        "",
        description="Names by which requests may call a server without API keys, beside addresses and"
        " localhost: exact or *.suffix, comma separated.",
    )


class LocalEvents(StoreSettings):
    """Where the events of failed timers go on one machine, beside the log."""

    failed_hook_url: Annotated[str, AfterValidator(_check_hook_url)] = Field(
        "",
        repr=False,  # it may carry a secret
        max_length=2048,
        description="URL that gets a POST when a timer fails. By variable only, since it may carry a secret.",
    )
