"""Parses the records of a file, strictly, by the types of the dataclasses that ``records`` writes."""

from __future__ import annotations

import json
from base64 import b64decode
from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime
from functools import lru_cache
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    create_model,
)
from pydantic.alias_generators import to_camel

from duetime.domain.api_keys import ApiKey
from duetime.domain.executions import Execution
from duetime.domain.ids import MAX_NAMESPACE_CHARACTERS
from duetime.domain.namespaces import Namespace
from duetime.domain.occurrences import OccurrenceRecord, PastOccurrence
from duetime.domain.service_calls import ServiceCall
from duetime.domain.shards import MAX_DEDICATED_SHARD
from duetime.domain.timers import Timer
from duetime.domain.times import parse_instant
from duetime.transfer.records import KINDS, OF_STORE, Value

_parse_instant = lru_cache(maxsize=4096)(parse_instant)


def _instant(value: Any) -> datetime:
    if not isinstance(value, str):
        raise ValueError("must be an RFC 3339 time with an offset, like 2026-12-20T15:30:00Z")
    return _parse_instant(value)


def _bytes(value: Any) -> bytes:
    try:
        return b64decode(value, validate=True)
    except (ValueError, TypeError):
        raise ValueError("must be base64") from None


def _object_text(value: str) -> str:
    if not isinstance(json.loads(value), dict):
        raise ValueError("must be the text of a JSON object")
    return value


Instant = Annotated[datetime, BeforeValidator(_instant)]
_MAX_WHOLE = 2**63 - 1
"""The largest integer that stores hold."""
Count = Annotated[int, Field(ge=0, le=_MAX_WHOLE)]
_Ordinal: TypeAlias = Annotated[int, Field(ge=1, le=_MAX_WHOLE)]
_Rate: TypeAlias = _Ordinal | Annotated[float, Field(gt=0, allow_inf_nan=False)]
_BY_TYPE: Final[dict[Any, Any]] = {
    datetime: Instant,
    bytes: Annotated[bytes, BeforeValidator(_bytes)],
    int: Count,
    float: _Rate,
}
_BY_NAME: Final[dict[str, Any]] = {
    "revision": _Ordinal,
    "sequence": _Ordinal,
    "max_in_flight": _Ordinal | None,
    "min_schedule_interval_ms": _Ordinal | None,
    "num_shards": Annotated[int, Field(ge=1, le=MAX_DEDICATED_SHARD)],
    "unknown_json": Annotated[str, AfterValidator(_object_text)] | None,
}
"""What is narrower than its type says."""


class Model(BaseModel):
    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        frozen=True,
        alias_generator=to_camel,
        hide_input_in_errors=True,
    )


def _parsed(hint: Any) -> Any:
    """Return the type that parses a value of the type ``hint``: what JSON has no word for, and dataclasses."""
    if is_dataclass(hint):
        return _as_dataclass(hint)
    if not (parts := get_args(hint)):
        return _BY_TYPE.get(hint, hint)
    origin = Union if get_origin(hint) is UnionType else get_origin(hint)
    return origin[tuple(part if part is ... else _parsed(part) for part in parts)]


def _as_dataclass(cls: Any, **kind: Any) -> Any:
    """Return the type that parses an object with the fields of ``cls``, into one."""
    hints = get_type_hints(cls)
    given: dict[str, Any] = {
        each.name: (_BY_NAME.get(each.name, _parsed(hints[each.name])), _default(each, hints[each.name]))
        for each in fields(cls)
        if each.name not in OF_STORE
    }
    of_store = {each.name: OF_STORE[each.name] for each in fields(cls) if each.name in OF_STORE}

    def made(read: Any) -> Any:
        return cls(**of_store, **{name: getattr(read, name) for name in given})

    return Annotated[create_model(cls.__name__, __base__=Model, **kind, **given), AfterValidator(made)]


def _default(field: Any, hint: Any) -> Any:
    if field.default is not MISSING:
        return field.default
    return None if NoneType in get_args(hint) else ...


_PARSED = tuple(_as_dataclass(cls, kind=(Literal[kind.value], ...)) for cls, kind in KINDS.items())
_RECORD: Any = Union[_PARSED]  # noqa: UP007  (there is no other way for a tuple)
_RECORDS: Final[TypeAdapter[Value]] = TypeAdapter(Annotated[_RECORD, Field(discriminator="kind")])


def read_value(line: bytes) -> Value:
    """Parse a record. ``ValueError`` names the field and shows nothing of its value."""
    try:
        value = _RECORDS.validate_json(line)
    except ValidationError as error:
        raise ValueError(what_is_wrong(error)) from None
    match value:
        case Timer() if value.state.is_finished != (value.next_attempt_at is None):
            raise ValueError("a timer has nextAttemptAt unless it has finished")
        case ServiceCall() if not value.status.is_finished == (value.wake_at is None) == bool(value.finished_at):
            raise ValueError("a service call has wakeAt until it is finished, and finishedAt from then on")
        case Namespace(name=name) if not 1 <= len(name) <= MAX_NAMESPACE_CHARACTERS:
            raise ValueError(f"a namespace has a name of 1 to {MAX_NAMESPACE_CHARACTERS} characters")
        case Execution(number=0) | PastOccurrence(line=OccurrenceRecord(number=0)):
            raise ValueError("an execution, and a line of the history, has a number of 1 or more")
        case ApiKey(role=None):
            raise ValueError("an API key has a role")
    return value


def what_is_wrong(error: ValidationError) -> str:
    """Describe the first error in one line."""
    first = error.errors(include_input=False, include_url=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    message = first["msg"].removeprefix("Value error, ")
    return f"{place}: {message}" if place else message
