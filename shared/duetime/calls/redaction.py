"""What the execution log keeps of requests and responses: no secrets, and no more than its limit. Pure.

Names decide: the values of headers, of query parameters and of fields in bodies are replaced when their name is one
of a secret. A body is looked into when it is JSON or a form, however it is cut off.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote_plus

from duetime.delivery.headers import Header
from duetime.delivery.port import CallbackResult
from duetime.domain.executions import REDACTED, LoggedMessage
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
DEFAULT_MAX_BODY_BYTES: Final = 64 * 1024

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
class LogRules:
    """``headers``: names of headers with secrets; ``fields``: of query parameters, form fields and members of JSON.

    ``max_body_bytes`` of each body are kept, as text in UTF-8 (or as base64, where it is none), unless
    ``keeps_bodies`` is False.
    """

    headers: NamePatterns = _SECRET_HEADERS
    fields: NamePatterns = _SECRET_FIELDS
    keeps_bodies: bool = True
    max_body_bytes: int = DEFAULT_MAX_BODY_BYTES


def logged_request(headers: Sequence[Header], body: bytes | None, rules: LogRules) -> LoggedMessage:
    return _logged(headers, body, rules, is_whole=True)


def logged_response(result: CallbackResult, rules: LogRules) -> LoggedMessage:
    """The answer in ``result``, of whose body no more may have been read than a part."""
    return _logged(_read_head(result.head), result.body, rules, is_whole=not result.body_truncated)


def shown_url(url: str, rules: LogRules) -> str:
    """``url`` without its fragment and without the values of parameters with secrets."""
    address, mark, query = url.partition("#")[0].partition("?")
    return address + mark + redact_parameters(query, rules.fields)


# -- bodies --------------------------------------------------------------------------------------------------------


def _logged(headers: Sequence[Header], body: bytes | None, rules: LogRules, *, is_whole: bool) -> LoggedMessage:
    shown = tuple((name, _shown_value(name, value, rules)) for name, value in headers)
    if not body:
        return LoggedMessage(headers=shown, is_truncated=not is_whole)
    if not rules.keeps_bodies:
        return LoggedMessage(headers=shown, body_bytes=len(body), is_truncated=True)
    text = _decoded(body, is_whole=is_whole)
    if text is None:
        shown_bytes = _redacted_bytes(body, headers, rules.fields)
        if shown_bytes is None:
            return LoggedMessage(headers=shown, body_bytes=len(body), is_truncated=True)
        kept = shown_bytes[: rules.max_body_bytes * 3 // 4]
        return LoggedMessage(
            headers=shown,
            body=base64.b64encode(kept).decode(),
            body_bytes=len(body),
            is_truncated=len(kept) < len(shown_bytes) or not is_whole,
            body_is_base64=True,
        )
    text = _redacted(text, _first_value(headers, "content-type"), rules.fields)
    cut = cut_text(text, rules.max_body_bytes)
    return LoggedMessage(
        headers=shown, body=cut, body_bytes=len(body), is_truncated=len(cut) < len(text) or not is_whole
    )


def _shown_value(name: str, value: str, rules: LogRules) -> str:
    if rules.headers.fits(name):
        return REDACTED
    if "://" not in value and name.lower() not in _URL_HEADERS:
        return value
    # There may be several, as in Link.
    return _QUERY.sub(lambda match: shown_url(match[0], rules), _USER_INFO.sub("//", value))


def cut_text(text: str, max_bytes: int) -> str:
    """The beginning of ``text`` that has at most ``max_bytes`` in UTF-8, without half a character at its end."""
    encoded = text.encode()
    return text if len(encoded) <= max_bytes else encoded[:max_bytes].decode(errors="ignore")


def _decoded(body: bytes, *, is_whole: bool) -> str | None:
    """``body`` as text; None when it is no UTF-8, or has a NUL, which not every database takes as text.

    One that was cut off may end within a character.
    """
    if b"\0" in body:
        return None
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        if is_whole or len(body) - error.start > 3 or error.reason != "unexpected end of data":
            return None
        return body[: error.start].decode()


def _first_value(headers: Sequence[Header], wanted: str) -> str:
    return next((value for name, value in headers if name.lower() == wanted), "").lower()


def _redacted_bytes(body: bytes, headers: Sequence[Header], fields: NamePatterns) -> bytes | None:
    """``body``, which is no text in UTF-8, without secrets; None when it may have some that cannot be seen."""
    if not fields:
        return body
    content_type = _first_value(headers, "content-type")
    if _first_value(headers, "content-encoding") not in ("", "identity"):
        return None
    if b"\0" in body and _is_looked_into(content_type):  # UTF-16, or UTF-32
        return None
    # Every other encoding that JSON and forms come in has the names of fields in ASCII.
    return _redacted(body.decode("latin-1"), content_type, fields).encode("latin-1")


def _is_looked_into(content_type: str) -> bool:
    return "json" in content_type or _FORM in content_type


def _redacted(text: str, content_type: str, fields: NamePatterns) -> str:
    if _FORM in content_type:
        return redact_parameters(text, fields)
    if "json" in content_type or text.lstrip()[:1] in ("{", "["):
        return redact_members(text, fields)
    return text


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


# -- headers -------------------------------------------------------------------------------------------------------


def _read_head(lines: Sequence[bytes]) -> list[Header]:
    """Names and values of raw header lines; bytes beyond ASCII are read as UTF-8 where they are, else as Latin-1."""
    headers = []
    for line in lines:
        name, colon, value = line.partition(b":")
        if colon:
            headers.append((_readable(name), _readable(value)))
    return headers


def _readable(raw: bytes) -> str:
    try:
        text = raw.strip().decode()
    except UnicodeDecodeError:
        text = raw.strip().decode("latin-1")
    return "".join(character if character.isprintable() else "?" for character in text)
