"""Rules for single values of a request. Each is a function from what was given to what is kept.

They raise ``ValueError`` with a message that completes "<field> ...", or ``at(path, message)`` when the fault lies
deeper than the field itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from typing import Any

from pydantic_core import PydanticCustomError

from duetime.api.http.raw_json import decode_unique
from duetime.delivery.egress import parse_destination
from duetime.domain.api_keys import MAX_KEY_SECONDS
from duetime.domain.retry import RetryPolicy, parse_retry_policy
from duetime.domain.secrets import MAX_OVERLAP_SECONDS
from duetime.domain.targets import is_arn, parse_arn
from duetime.domain.times import parse_instant, read_seconds

MAX_URL_CHARACTERS = 2048
MAX_HEADERS = 32
MAX_HEADERS_BYTES = 8 * 1024
MAX_TAGS = 20
MAX_TAG_CHARACTERS = 128
MAX_CORRELATION_ID_CHARACTERS = 255
MAX_HEADER_TEXT_CHARACTERS = 255
MAX_RETRY_POLICY_TEXT = 2 * 1024
TEXT_PATTERN = r"^[^\u0000-\u001f\u007f-\u009f]*$"
"""Without control characters. Patterns are for the document: regular expressions that ECMAScript reads alike."""
LOCAL_TIME_PATTERN = "^(?:19[7-9][0-9]|[2-9][0-9]{3})-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(?::[0-9]{2})?$"
HEADER_NAME_PATTERN = r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$"
HEADER_VALUE_PATTERN = r"^[\t\x20-\x7e\xa0-\xff]*$"
HEADER_TEXT_PATTERN = rf"^[!-~](?:[ -~]{{0,{MAX_HEADER_TEXT_CHARACTERS - 2}}}[!-~])?$"
_MAX_HEADERS_TEXT = 4 * MAX_HEADERS_BYTES
_CACHED_CHECKS = 128

# Printable ASCII without space, '#' (a fragment is never sent) and '\' (which clients read in different ways).
_URL = re.compile(
    r"https?://(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]{1,253})(?::[0-9]{1,5})?(?:[/?][!-\"$-\[\]-~]*)?", re.IGNORECASE
)
_TOKEN = re.compile(HEADER_NAME_PATTERN)
_LOCAL_TIME = re.compile(LOCAL_TIME_PATTERN)
_HEADER_VALUE = re.compile(HEADER_VALUE_PATTERN)
_DIGITS = re.compile(r"[0-9]{1,15}")
_HEADER_TEXT = re.compile(HEADER_TEXT_PATTERN)
_TEXT = re.compile(TEXT_PATTERN)


def at(path: str, message: str) -> PydanticCustomError:
    """Return a fault inside a field: ``path`` is what comes after the field's own name, e.g. ``.maxAttempts``."""
    return PydanticCustomError("duetime", "{message}", {"message": message, "path": path})


def instant(value: Any) -> datetime:
    return parse_instant(value if isinstance(value, str) else "")


def local_time(value: Any) -> datetime:
    """Return a local time, which has no zone: ``2027-03-28T09:00``, or with seconds."""
    text = value if isinstance(value, str) else ""
    if _LOCAL_TIME.fullmatch(text) is None:
        raise ValueError("must be a date and a time without an offset, like 2027-03-28T09:00")
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("is not a date and a time of the calendar") from None


def whole_number(least: int, most: int) -> Callable[[Any], int]:
    """Return a number in a query string: digits and nothing else."""

    def read(value: Any) -> int:
        if not (isinstance(value, str) and _DIGITS.fullmatch(value) and least <= int(value) <= most):
            raise ValueError(f"must be a whole number from {least} to {most}")
        return int(value)

    return read


def overlap_seconds(value: Any) -> float:
    seconds = read_seconds(value)
    if not 0 <= seconds <= MAX_OVERLAP_SECONDS:
        raise ValueError(f"must lie between 0 and {MAX_OVERLAP_SECONDS / 86_400:.0f} days")
    return seconds


def key_seconds(value: Any) -> float:
    """Return how long an API key is to be valid."""
    seconds = read_seconds(value)
    if not 0 < seconds <= MAX_KEY_SECONDS:
        raise ValueError(f"must be more than 0 and at most {MAX_KEY_SECONDS / 86_400:.0f} days")
    return seconds


# Timers of one kind have the same URL, headers and policy again and again.
@lru_cache(maxsize=_CACHED_CHECKS)
def callback_url(value: str) -> str:
    """Return an absolute http or https URL that every client reads alike. The egress policy judges where it leads."""
    if len(value) > MAX_URL_CHARACTERS:
        raise ValueError(f"must have at most {MAX_URL_CHARACTERS} characters")
    if _URL.fullmatch(value) is not None:
        parse_destination(value)
        return value
    authority = value.partition("://")[2].split("/")[0].split("?")[0]
    if "@" in authority:
        raise ValueError("must not contain user information")
    if "#" in value:
        raise ValueError("must not have a fragment")
    raise ValueError(
        "must be an absolute http or https URL in ASCII, without spaces or control characters, with a plain host"
        " (no percent-encoding, no zone of an address) and a port in digits, if any"
    )


def target_arn(value: str) -> str:
    return parse_arn(value).arn


@lru_cache(maxsize=_CACHED_CHECKS)
def check_headers(json_text: str, is_reserved: Callable[[str], bool]) -> None:
    """Raise ``ValueError`` unless ``json_text`` is an object of headers, with no name that ``is_reserved``."""
    given = decode_unique(json_text)
    if not isinstance(given, dict):
        raise ValueError("must be an object of strings")
    if len(given) > MAX_HEADERS:
        raise ValueError(f"must have at most {MAX_HEADERS} members")
    seen: set[str] = set()
    size_bytes = 0
    for name, content in given.items():
        problem = _header_problem(name, content, seen, is_reserved)
        if problem:
            raise at(f".{name}", problem)
        seen.add(name.lower())
        size_bytes += len(name) + len(content)
    if size_bytes > MAX_HEADERS_BYTES or len(json_text) > _MAX_HEADERS_TEXT:
        raise ValueError(f"must have at most {MAX_HEADERS_BYTES} bytes")


def _header_problem(name: str, content: Any, seen: set[str], is_reserved: Callable[[str], bool]) -> str | None:
    if not _TOKEN.fullmatch(name):
        return "is not a header name"
    if is_reserved(name):
        return "is set by Duetime and cannot be given"
    if name.lower() in seen:
        return "is given twice"
    if not isinstance(content, str):
        return "must be a string"
    if not _HEADER_VALUE.fullmatch(content):
        return "must hold printable Latin-1 characters only"
    return None


def retry_policy(json_text: str) -> str:
    """Return a policy that only says when attempts are repeated."""
    if (url := _checked_retry_policy(json_text).escalate_url) is not None:
        name = ".escalateTarget" if is_arn(url) else ".escalateUrl"
        raise at(name, "is for the policies of timers and schedules: events tell of other failures")
    return json_text


def timer_retry_policy(json_text: str) -> str:
    _checked_retry_policy(json_text)
    return json_text


def _checked_retry_policy(json_text: str) -> RetryPolicy:
    if len(json_text) > MAX_RETRY_POLICY_TEXT:
        raise ValueError(f"must have at most {MAX_RETRY_POLICY_TEXT} characters")
    return _read_retry_policy(json_text)


@lru_cache(maxsize=_CACHED_CHECKS)
def _read_retry_policy(json_text: str) -> RetryPolicy:
    given = decode_unique(json_text)
    if not isinstance(given, dict):
        raise ValueError("must be an object")
    try:
        policy = parse_retry_policy(given)
    except ValueError as error:
        name, message = error.args[0]
        raise at(f".{name}", message) from None
    if policy.escalate_url is not None:
        is_url = given.get("escalateTarget") is None
        try:
            (callback_url if is_url else parse_arn)(policy.escalate_url)
        except ValueError as error:
            raise at(".escalateUrl" if is_url else ".escalateTarget.arn", str(error)) from None
    return policy


def correlation_id(value: str) -> str:
    return text(value, MAX_CORRELATION_ID_CHARACTERS)


def tags(value: list[str]) -> tuple[str, ...]:
    if len(value) > MAX_TAGS:
        raise ValueError(f"must have at most {MAX_TAGS} items")
    for index, tag in enumerate(value):
        try:
            text(tag, MAX_TAG_CHARACTERS)
        except ValueError as error:
            raise at(f"[{index}]", str(error)) from None
    if len(set(value)) != len(value):
        raise ValueError("must not have an item twice")
    return tuple(value)


def tag(value: str) -> str:
    return text(value, MAX_TAG_CHARACTERS)


def text(value: str, max_characters: int) -> str:
    if not 1 <= len(value) <= max_characters:
        raise ValueError(f"must have 1 to {max_characters} characters")
    if _TEXT.fullmatch(value) is None:
        raise ValueError("must not contain control characters")
    return value


def header_text(value: str) -> str:
    """Check an idempotency key, or a correlation id in a header: what a header carries and no hop changes."""
    if _HEADER_TEXT.fullmatch(value) is None:
        limit = MAX_HEADER_TEXT_CHARACTERS
        raise ValueError(f"must have 1 to {limit} printable ASCII characters, without space at either end")
    return value
