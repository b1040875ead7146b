"""Python's values as the API takes them, and its texts as Python's values.

Times have an offset, or are refused: whether a naive one is meant in UTC or in local time nobody can tell.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Final, TypeVar

from duetime_client.errors import InvalidArgument


class Unset(Enum):
    """Stands for an argument that was not given, where None means something else."""

    UNSET = "unset"

    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final = Unset.UNSET

_SECOND = timedelta(seconds=1)
_MICROSECOND = timedelta(microseconds=1)
_UNIT_SECONDS = {"w": 604_800, "d": 86_400, "h": 3600, "m": 60, "s": 1}
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_GO_DURATION = re.compile(rf"(?:{_NUMBER}(?:ms|s|m|h|d))+")
_GO_PART = re.compile(rf"({_NUMBER})(ms|s|m|h|d)")
_ISO_DURATION = re.compile(
    rf"P(?=[0-9T])(?:({_NUMBER})W|(?:({_NUMBER})D)?(?:T(?=[0-9])(?:({_NUMBER})H)?(?:({_NUMBER})M)?(?:({_NUMBER})S)?)?)"
)
_MAX_INT_DIGITS = 4000
"""Python refuses to make an int of more than 4300 digits, unless it is told otherwise."""


@dataclass(frozen=True, slots=True)
class RawJson:
    """JSON that is sent as exactly this text: ``1.10``, numbers beyond a float, names in the order given."""

    text: str = field(repr=False)

    def __post_init__(self) -> None:
        try:
            # Numbers are looked at, not made. Without this, a broken text could bring members of its own.
            json.loads(self.text, parse_int=str, parse_float=str, parse_constant=_refuse_constant)
        except (ValueError, TypeError, RecursionError) as error:
            raise InvalidArgument(f"RawJson: is not JSON: {error}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What takes messages on AWS, in the place of a URL: an SQS queue, an SNS topic, an EventBridge bus, a Lambda
    function or a Step Functions state machine."""

    arn: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often, how long and how far apart. What is None is as the API has it by default.

    ``max_attempts`` counts the first try. ``escalate_url``, or ``escalate_target``, is told when a timer, or an
    occurrence of a schedule, has failed; policies of service calls and namespaces have neither.
    """

    max_attempts: int | None = None
    max_attempts_duration: timedelta | None = None
    initial_interval: timedelta | None = None
    backoff_multiplier: float | None = None
    max_interval: timedelta | None = None
    escalate_url: str | None = None
    escalate_target: Target | None = None


_T = TypeVar("_T")
Encoder = Callable[[str, Any], Any]
"""Makes of an argument, which it is told the name of, what is sent. Raises ``InvalidArgument``."""


def instant(name: str, value: Any) -> str:
    if not isinstance(value, datetime):
        raise InvalidArgument(f"{name}: must be a datetime")
    if value.utcoffset() is None:
        raise InvalidArgument(f"{name}: must have an offset, like datetime.now(UTC); a naive time is ambiguous")
    try:
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    except OverflowError:
        raise InvalidArgument(f"{name}: is out of range") from None


def duration(name: str, value: Any) -> str:
    if not isinstance(value, timedelta):
        raise InvalidArgument(f"{name}: must be a timedelta, like timedelta(minutes=5)")
    if value < timedelta():
        raise InvalidArgument(f"{name}: must not be negative")
    seconds, rest = divmod(value, _SECOND)
    return f"{seconds}.{rest // _MICROSECOND:06d}s" if rest else f"{seconds}s"


def whole_seconds(name: str, value: Any) -> int:
    duration(name, value)
    seconds, rest = divmod(value, _SECOND)
    if rest:
        raise InvalidArgument(f"{name}: must be whole seconds")
    return int(seconds)


def plain(_name: str, value: Any) -> Any:
    """Return the value as it is: the API has the rules for it."""
    return value


def texts(name: str, value: Any) -> list[str]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InvalidArgument(f"{name}: must be several texts, like a list")
    return [str(item) for item in value]


def one_or_more(name: str, value: Any) -> list[str]:
    return [value] if isinstance(value, str) else texts(name, value)


def headers(name: str, value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise InvalidArgument(f"{name}: must be a mapping of names to values")
    return dict(value)


def payload(name: str, value: Any) -> RawJson:
    if isinstance(value, RawJson):
        return value
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgument(f"{name}: is not JSON: {error}") from None
    result = RawJson.__new__(RawJson)
    object.__setattr__(result, "text", text)  # it need not be looked at again
    return result


def of_type(kind: type[_T], name: str, value: Any) -> _T:
    """Return ``value``, which is a ``kind``."""
    if not isinstance(value, kind):
        raise InvalidArgument(f"{name}: must be a {kind.__name__}")
    return value


def target(name: str, value: Any) -> dict[str, Any]:
    return {"arn": of_type(Target, name, value).arn}


def _part_of_policy(name: str, value: Any) -> Any:
    if isinstance(value, Target):
        return target(name, value)
    return duration(name, value) if isinstance(value, timedelta) else value


def policy(name: str, value: Any) -> dict[str, Any]:
    given = {each.name: getattr(value, each.name) for each in fields(of_type(RetryPolicy, name, value))}
    return {camel(key): _part_of_policy(f"{name}.{key}", item) for key, item in given.items() if item is not None}


def members(encoders: Mapping[str, tuple[str, Encoder]], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of a body. ``encoders`` has the API's name and the encoder for each argument in ``given``.

    What is UNSET is left out; None becomes null. Raises ``TypeError`` for an argument that is not in ``encoders``.
    """
    if unknown := given.keys() - encoders.keys():
        raise TypeError(f"unexpected argument {min(unknown)!r}")
    return {
        encoders[name][0]: None if value is None else encoders[name][1](name, value)
        for name, value in given.items()
        if value is not UNSET
    }


def without_nulls(body: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if value is not None}


def json_bytes(value: Any) -> bytes:
    """Return the JSON of objects and lists in which a ``RawJson`` stays as it is."""
    try:
        return _json_text(value).encode()
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"cannot be sent as JSON: {error}") from None


def _json_text(value: Any) -> str:
    if isinstance(value, RawJson):
        return value.text
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(name)}:{_json_text(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_json_text, value)) + "]"
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def query_pairs(given: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the parameters of a query; several values are a parameter each."""
    return [
        (name, ("true" if item else "false") if isinstance(item, bool) else str(item))
        for name, value in given.items()
        for item in ([value] if isinstance(value, str) or not isinstance(value, Iterable) else value)
    ]


def read_json(content: bytes) -> Any:
    """Do as ``json.loads``, but numbers that an int or a float cannot hold become a ``Decimal`` with all their
    digits.

    Raises ``ValueError``.
    """
    try:
        return json.loads(content, parse_int=_read_int, parse_float=_read_float)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def read_instant(text: str) -> datetime:
    """Read an instant, in UTC. Raises ``ValueError``."""
    at = datetime.fromisoformat(text)
    if at.utcoffset() is None:
        raise ValueError("a time without an offset")
    return at.astimezone(UTC)


def read_duration(value: str | float) -> timedelta:
    """Read any form that the API takes: ``"1h30m"``, ``"PT5M"``, seconds. Raises ``ValueError``."""
    if not isinstance(value, str):
        return timedelta(seconds=value)
    if _GO_DURATION.fullmatch(value):
        parts = [(number, 0.001 if unit == "ms" else _UNIT_SECONDS[unit]) for number, unit in _GO_PART.findall(value)]
        return sum((_span(number, seconds) for number, seconds in parts), timedelta())
    match = _ISO_DURATION.fullmatch(value)
    if match is not None:
        pairs = zip(match.groups(), _UNIT_SECONDS.values(), strict=True)
        return sum((_span(number or "0", seconds) for number, seconds in pairs), timedelta())
    return timedelta(seconds=float(value))


def camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def _span(number: str, seconds: float) -> timedelta:
    whole = int(number) if number.isdecimal() else float(number)
    return timedelta(milliseconds=whole) if seconds < 1 else timedelta(seconds=whole * seconds)


def _read_int(digits: str) -> int | Decimal:
    return int(digits) if len(digits) <= _MAX_INT_DIGITS else Decimal(digits)


def _read_float(digits: str) -> float | Decimal:
    value = float(digits)
    if math.isfinite(value):
        return value
    try:
        return Decimal(digits)
    except ArithmeticError:  # an exponent beyond those of a Decimal too
        return value


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")
