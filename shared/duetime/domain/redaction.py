"""Redacts secrets in what is shown and logged. Pure.

Names decide: the values of headers, query parameters and fields of bodies are replaced if their name is that of a
secret. Bodies are searched if they are JSON or forms, truncated ones too. Used by the execution log, the attempt log,
views for readers and the program's own log.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote_plus

from duetime.domain.api_keys import KEY_PREFIX
from duetime.domain.executions import REDACTED
from duetime.domain.name_patterns import NamePatterns, parse_name_patterns

DEFAULT_HEADERS: Final = (
    "*auth*,!author,!www-authenticate,*cookie*,*credential*,*csrf*,*jwt*,*key*,!idempotency-key,*passphrase*,*passw*,"
    "*proxy-*,*secret*,*session*,*signature*,*token*,*xsrf*"
)
DEFAULT_FIELDS: Final = (
    "*passw*,*passphrase*,pwd,*secret*,*token*,*apikey*,*accesskey*,*privatekey*,*credential*,"
    "authorization,*signature*,sig,*jwt*"
)

_SECRET_HEADERS: Final = parse_name_patterns(DEFAULT_HEADERS)
_SECRET_FIELDS: Final = parse_name_patterns(DEFAULT_FIELDS)
_LOG_FIELDS: Final = parse_name_patterns(f"{DEFAULT_FIELDS},*authori*ation*,*cookie*,*header*,*payload*,*body*")
_FORM: Final = "x-www-form-urlencoded"
# What was cut off may end within an escape. Each quote begins a match, or it would look through all the rest in vain.
_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)'
_STRING_AND_COLON = re.compile(rf"({_STRING})(\s*+:\s*+)?", re.DOTALL)
_STRING_OR_BRACKET = re.compile(rf"{_STRING}|[\[\]{{}}]", re.DOTALL)
_SCALAR = re.compile(r"[^,\]}\s]*+")
_URL_HEADERS: Final = frozenset({"location", "content-location", "link", "refresh"})
_USER_INFO = re.compile(r"//[^/?#\s]*@")
_QUERY = re.compile(r"[?#][^\s<>\"]*+")
_PARAMETER = re.compile(r"(^|[&;])([^&;=]*+)=([^&;]*+)")
# A scheme of any length would be looked for from each letter of a long word.
_URL = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]{0,30}://)(?:[^\s/?#\"'<>]*@)?(?P<rest>[^\s?#\"'<>]*)(?:[?#][^\s\"'<>]*)?"
)
_CREDENTIALS = re.compile(r"(?P<scheme>\b(?!https?:|sqlite:)[A-Za-z][A-Za-z0-9+.-]{0,30}://)\S*@")
"""Drivers accept passwords that a URL must not have: everything before the last @ may be part of one."""
_NUMBERS: Final = (int, float)
_API_KEY = re.compile(rf"{KEY_PREFIX}[0-9A-Za-z_-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class RedactionRules:
    """Names of secrets: of ``headers``, and of query parameters, form fields and JSON members (``fields``)."""

    headers: NamePatterns = _SECRET_HEADERS
    fields: NamePatterns = _SECRET_FIELDS


DEFAULT_RULES: Final = RedactionRules()


def shown_url(url: str, rules: RedactionRules) -> str:
    """Return ``url`` without its fragment and without the values of secret parameters."""
    address, mark, query = url.partition("#")[0].partition("?")
    return address + mark + redact_parameters(query, rules.fields)


def shown_value(name: str, value: str, rules: RedactionRules) -> str:
    """Return the value of the header ``name`` without secrets."""
    if rules.headers.fits(name):
        return REDACTED
    if "://" not in value and name.lower() not in _URL_HEADERS:
        return value
    # There may be several, as in Link.
    return _QUERY.sub(lambda match: shown_url(match[0], rules), _USER_INFO.sub("//", value))


def redact_body(text: str, content_type: str, fields: NamePatterns) -> str:
    """Return ``text``, a body or its beginning, without secrets. ``content_type`` is in lower case."""
    if _FORM in content_type:
        return redact_parameters(text, fields)
    if "json" in content_type or text.lstrip()[:1] in ("{", "["):
        return redact_members(text, fields)
    return text


def is_looked_into(content_type: str) -> bool:
    return "json" in content_type or _FORM in content_type


def redact_parameters(text: str, fields: NamePatterns) -> str:
    """Return ``text``, a query or a form, without the values of ``fields``."""

    def shown(match: re.Match[str]) -> str:
        return f"{match[1]}{match[2]}={REDACTED if fields.fits(unquote_plus(match[2])) else match[3]}"

    return _PARAMETER.sub(shown, text)


def redact_members(text: str, fields: NamePatterns) -> str:
    """Return ``text``, JSON or its beginning, without the values of ``fields`` at any depth.

    Everything else stays exactly as it is.
    """
    parts: list[str] = []
    kept_to = position = 0
    while (match := _STRING_AND_COLON.search(text, position)) is not None:
        position = match.end()
        if match[2] is not None and fields.fits(_name(match[1])):
            parts += (text[kept_to:position], f'"{REDACTED}"')
            kept_to = position = _end_of_value(text, position)
    return "".join(parts) + text[kept_to:] if parts else text


def _name(literal: str) -> str:
    if "\\" not in literal:
        return literal[1:-1]
    try:
        return str(json.loads(literal))
    except ValueError:
        return literal[1:-1]


def _end_of_value(text: str, start: int) -> int:
    """Return the end of the JSON value that begins at ``start``, or of the text."""
    first = text[start : start + 1]
    if first not in ("{", "[", '"'):
        scalar = _SCALAR.match(text, start)
        return start if scalar is None else scalar.end()
    depth = 0
    for match in _STRING_OR_BRACKET.finditer(text, start):
        token = match[0]
        if token in ("{", "["):
            depth += 1
        elif token in ("}", "]"):
            depth -= 1
        if depth == 0:
            return match.end()
    return len(text)


# -- the program's own log -----------------------------------------------------------------------------------------


def redact_text(text: str) -> str:
    """Return ``text`` without API keys, its URLs reduced to scheme, host, port and path."""
    if KEY_PREFIX in text:
        text = _API_KEY.sub(REDACTED, text)
    if "://" not in text:
        return text
    return _URL.sub(r"\g<scheme>\g<rest>", _CREDENTIALS.sub(r"\g<scheme>", text))


def redact_field(name: str, value: object) -> object:
    """Return ``value`` as it may be logged under ``name``; containers are searched."""
    if isinstance(value, _NUMBERS):
        return value
    if _LOG_FIELDS.fits(name):
        return REDACTED
    if isinstance(value, str):
        return redact_text(value)
    if isinstance(value, Mapping):
        return {str(key): redact_field(str(key), item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [redact_field(name, item) for item in value]
    return value
