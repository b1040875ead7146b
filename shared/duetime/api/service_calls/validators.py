"""Rules for single values of a request about service calls, beside those of ``http.validators``."""

from __future__ import annotations

import re
from typing import Any

from duetime.api.http.raw_json import decode_unique
from duetime.api.http.validators import at, check_headers, text
from duetime.delivery.headers import is_reserved_in_calls
from duetime.domain.executions import REDACTED
from duetime.domain.service_calls import MAX_NAME_CHARACTERS

_FLAGS = {"true": True, "false": False}


def name(value: str) -> str:
    return text(value, MAX_NAME_CHARACTERS)


def headers(value: str) -> str:
    """Check the headers of the request that is sent."""
    check_headers(value, is_reserved_in_calls)
    for header, content in decode_unique(value).items():
        if content == REDACTED:
            raise at(f".{header}", "is what answers show in place of a secret: give the value itself")
    return value


def flag(value: Any) -> bool:
    """Return a boolean in a query string."""
    if value not in _FLAGS:
        raise ValueError("must be true or false")
    return _FLAGS[value]


def sequence(value: Any) -> int:
    """Return the sequence number of an event, or 0, in a query string or a header."""
    if not (isinstance(value, str) and re.fullmatch(r"[0-9]{1,15}", value)):
        raise ValueError("must be a whole number from 0")
    return int(value)
