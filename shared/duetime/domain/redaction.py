"""Which values are not shown, by the names that they have: one rule for the execution log and for every view.

Names decide: the values of headers, of query parameters and of fields in bodies are replaced when their name is one
of a secret. A body is looked into when it is JSON or a form, however it is cut off. Pure.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote_plus

from duetime.domain.executions import REDACTED
from duetime.domain.name_patterns import NamePatterns, parse_name_patterns

DEFAULT_HEADERS: Final = (
    "*authorization*,*cookie*,x-auth-*,*-auth,*-authentication,key,x-key,*api-key*,*app-key*,*access-key*,*auth-key*,"
    "*client-key*,*functions-key*,*license-key*,*master-key*,*private-key*,*server-key*,*subscription-key*,"
    "*secret*,*passphrase*,*password*,*passwd*,*token*,*signature*,*credential*,*session*,*csrf*,*xsrf*,*jwt*"
)
DEFAULT_FIELDS: Final = (
    "*password*,*passwd*,*passphrase*,pwd,*secret*,*token*,*apikey*,*accesskey*,*privatekey*,*credential*,"
    "authorization,*signature*,sig,*jwt*"
)

_SECRET_HEADERS: Final = parse_name_patterns(DEFAULT_HEADERS)
_SECRET_FIELDS: Final = parse_name_patterns(DEFAULT_FIELDS)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RedactionRules:
    """``headers``: names of headers with secrets. ``fields``: those of query parameters, form fields and members of
    JSON."""

    headers: NamePatterns = _SECRET_HEADERS
    fields: NamePatterns = _SECRET_FIELDS


DEFAULT_RULES: Final = RedactionRules()


def shown_url(url: str, rules: RedactionRules) -> str:
    """``url`` without its fragment and without the values of parameters with secrets."""
    address, mark, query = url.partition("#")[0].partition("?")
    return address + mark + redact_parameters(query, rules.fields)


def shown_value(name: str, value: str, rules: RedactionRules) -> str:
    """The value of the header ``name`` as it may be shown."""
    if rules.headers.fits(name):
        return REDACTED
    if "://" not in value and name.lower() not in _URL_HEADERS:
        return value
    # There may be several, as in Link.
    return _QUERY.sub(lambda match: shown_url(match[0], rules), _USER_INFO.sub("//", value))


def redact_body(text: str, content_type: str, fields: NamePatterns) -> str:
    """``text``, a body or the beginning of it, without secrets. ``content_type`` is in lower case."""
    if _FORM in content_type:
        return redact_parameters(text, fields)
    if "json" in content_type or text.lstrip()[:1] in ("{", "["):
        return redact_members(text, fields)
    return text


def is_looked_into(content_type: str) -> bool:
    return "json" in content_type or _FORM in content_type


def redact_parameters(text: str, fields: NamePatterns) -> str:
    """``text``, a query or a form, without the values of those ``fields``."""

    def shown(match: re.Match[str]) -> str:
        return f"{match[1]}{match[2]}={REDACTED if fields.fits(unquote_plus(match[2])) else match[3]}"

    return _PARAMETER.sub(shown, text)


def redact_members(text: str, fields: NamePatterns) -> str:
    """``text``, JSON or the beginning of it, without the values of members of those names, at any depth.

    All the rest stays as it is, to the last digit. What is no JSON is not made worse.
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
    """Where the JSON value that begins at ``start`` ends, or the text."""
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
