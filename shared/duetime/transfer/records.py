"""Encodes each kind of record as a line of JSON: the fields of its dataclass, by their names in camelCase.

Equal records give equal bytes, whichever store they come from, so bytes can be compared and digested. None is left
out, and so are an empty list and an empty text that are the default. JSON from clients is exact text within a string
(``payloadJson``). ``OF_STORE`` is left out: the target has its own.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import date, datetime
from enum import StrEnum
from functools import cache
from operator import attrgetter
from typing import Any, Final, TypeAlias

from pydantic.alias_generators import to_camel

from duetime.domain.api_keys import ApiKey
from duetime.domain.executions import Execution
from duetime.domain.namespaces import Namespace
from duetime.domain.occurrences import PastOccurrence
from duetime.domain.service_calls import ServiceCall
from duetime.domain.timers import Timer
from duetime.domain.times import format_instant
from duetime.stores.port.outbox import OutboxEvent


class Kind(StrEnum):
    SECRET = "secret"  # noqa: S105  (a kind of record)
    NAMESPACE = "namespace"
    API_KEY = "apiKey"
    TIMER = "timer"
    OCCURRENCE = "occurrence"
    SERVICE_CALL = "serviceCall"
    EXECUTION = "execution"
    EVENT = "event"
    UNREADABLE = "unreadable"
    """What the source could not read: it is reported, not transferred."""


TRANSFERRED_KINDS = tuple(kind for kind in Kind if kind is not Kind.UNREADABLE)
CATALOGUE_KINDS = (Kind.SECRET, Kind.NAMESPACE, Kind.API_KEY)
"""They come first in a file."""


@dataclass(frozen=True, slots=True)
class CatalogueSecret:
    """A secret that all processes of a deployment share, such as the key of cursors."""

    name: str
    value: bytes


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Names what cannot be read: its kind (``of``), its key (``place``) and why; ``reason`` quotes nothing of it."""

    of: Kind
    place: tuple[str, ...]
    reason: str


OF_STORE: Final = {"shard_id": 0, "first_shard": 0, "earlier_shards": (), "elsewhere": (), "unreadable": None}
"""The fields that no record has, and what stands for them: the target's namespaces decide the shards."""

Value: TypeAlias = (
    CatalogueSecret | Namespace | ApiKey | Timer | PastOccurrence | ServiceCall | Execution | OutboxEvent | Unreadable
)


@dataclass(frozen=True, slots=True)
class Record:
    """``line`` is the JSON without the line end. ``expires_at``: the time from which it is treated as absent."""

    kind: Kind
    value: Value
    line: bytes
    expires_at: datetime | None = None


def record_of(value: Value, *, expires_at: datetime | None = None) -> Record:
    """Encode ``value``. ``expires_at``: given for what expires with something else, an execution with its call."""
    kind = kind_of(value)
    if isinstance(value, Timer | ServiceCall):
        expires_at = value.expires_at
    return Record(kind, value, as_line({"kind": kind, **_fields_of(value)}), expires_at)


def kind_of(value: Value) -> Kind:
    return KINDS[type(value)]


def name_of(value: Value) -> str:
    """Name a value for people, without its secrets."""
    return _NAMES[type(value)](value)


def as_line(values: dict[str, Any]) -> bytes:
    return _encode_json(values).encode()


def _fields_of(value: Any) -> dict[str, Any]:
    return {
        name: given
        for read, name, absent in _layout(type(value))  # type: ignore[arg-type]  # a class is hashable
        if (given := read(value)) is not None and given != absent
    }


@cache
def _layout(cls: type) -> list[tuple[Callable[[Any], Any], str, Any]]:
    """Return of each field how it is read, its name in the line, and the value beside None that is left out."""
    return [
        (attrgetter(each.name), to_camel(each.name), each.default if each.default in ((), "") else None)
        for each in fields(cls)
        if each.name not in OF_STORE
    ]


def _as_json(value: Any) -> Any:
    if isinstance(value, datetime):
        return format_instant(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, frozenset):
        return sorted(value)
    return b64encode(value).decode() if isinstance(value, bytes) else _fields_of(value)


_encode_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_as_json).encode

KINDS: dict[type, Kind] = {
    CatalogueSecret: Kind.SECRET,
    Namespace: Kind.NAMESPACE,
    ApiKey: Kind.API_KEY,
    Timer: Kind.TIMER,
    PastOccurrence: Kind.OCCURRENCE,
    ServiceCall: Kind.SERVICE_CALL,
    Execution: Kind.EXECUTION,
    OutboxEvent: Kind.EVENT,
    Unreadable: Kind.UNREADABLE,
}
_NAMES: dict[type, Callable[[Any], str]] = {
    CatalogueSecret: lambda value: f"catalogue secret {value.name!r}",
    Namespace: lambda value: f"namespace {value.name!r}",
    ApiKey: lambda value: f"API key {value.key_id} of tenant {value.tenant_id!r}",
    Timer: lambda value: f"timer {value.timer_id!r} of namespace {value.namespace!r}",
    PastOccurrence: lambda value: f"occurrence {value.line.number} of schedule {value.schedule_id!r}",
    ServiceCall: lambda value: f"service call {value.call_id} of tenant {value.tenant_id!r}",
    Execution: lambda value: f"execution {value.execution_id} of service call {value.call_id}",
    OutboxEvent: lambda value: f"event {value.event.sequence} of service call {value.event.aggregate_id}",
    Unreadable: lambda value: f"{value.of.value} {'/'.join(value.place)}",
}
