"""Rules for single values of a request about service calls, as ``fields`` has them for timers."""

from __future__ import annotations

import re
from typing import Any

from duetime.api import fields
from duetime.api.fields import at
from duetime.api.raw_json import RawJson, decode_unique
from duetime.delivery.headers import is_reserved_in_calls
from duetime.domain.executions import REDACTED
from duetime.domain.service_calls import MAX_NAME_CHARACTERS, MAX_TAGS

MAX_IDEMPOTENCY_KEY_CHARACTERS = 255

_FLAGS = {"true": True, "false": False}
_KEY = re.compile(rf"[\x20-\x7e]{{1,{MAX_IDEMPOTENCY_KEY_CHARACTERS}}}")


def name(value: str) -> str:
    return fields.text(value, MAX_NAME_CHARACTERS)


def idempotency_key(value: str) -> str:
    """Printable ASCII: what a header can carry as well."""
    if _KEY.fullmatch(value) is None or value != value.strip():
        limit = MAX_IDEMPOTENCY_KEY_CHARACTERS
        raise ValueError(f"must have 1 to {limit} printable ASCII characters, without space at either end")
    return value


def headers(value: RawJson) -> RawJson:
    """Headers of the request that is sent."""
    fields.check_headers(value, is_reserved_in_calls)
    for header, content in decode_unique(value).items():
        if content == REDACTED:
            raise at(f".{header}", "is what answers show in place of a secret: give the value itself")
    return value


def tags(value: list[str]) -> tuple[str, ...]:
    return fields.checked_tags(value, MAX_TAGS)


def flag(value: Any) -> bool:
    """A boolean in a query string."""
    if value not in _FLAGS:
        raise ValueError("must be true or false")
    return _FLAGS[value]


def sequence(value: Any) -> int:
    """The sequence number of an event, or 0, in a query string or a header."""
    if not (isinstance(value, str) and re.fullmatch(r"[0-9]{1,15}", value)):
        raise ValueError("must be a whole number from 0")
    return int(value)
