"""Makes the messages of the execution log: requests and responses without secrets, within a limit. Pure."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from duetime.delivery.headers import Header
from duetime.delivery.port import CallbackResult
from duetime.domain.executions import LoggedMessage
from duetime.domain.name_patterns import NamePatterns
from duetime.domain.redaction import RedactionRules, is_looked_into, redact_body, shown_value

DEFAULT_MAX_BODY_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRules(RedactionRules):
    """Adds limits. ``max_body_bytes`` of each body are kept, as UTF-8 text or base64, unless not ``keeps_bodies``."""

    keeps_bodies: bool = True
    max_body_bytes: int = DEFAULT_MAX_BODY_BYTES


def logged_request(headers: Sequence[Header], body: bytes | None, rules: LogRules) -> LoggedMessage:
    return _logged(headers, body, rules, is_whole=True)


def logged_response(result: CallbackResult, rules: LogRules) -> LoggedMessage:
    """Return the answer in ``result``, of whose body no more may have been read than a part."""
    return _logged(_read_head(result.head), result.body, rules, is_whole=not result.body_truncated)


# -- bodies --------------------------------------------------------------------------------------------------------


def _logged(headers: Sequence[Header], body: bytes | None, rules: LogRules, *, is_whole: bool) -> LoggedMessage:
    shown = tuple([(name, shown_value(name, value, rules)) for name, value in headers])
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
    text = redact_body(text, _first_value(headers, "content-type"), rules.fields)
    cut = cut_text(text, rules.max_body_bytes)
    return LoggedMessage(
        headers=shown, body=cut, body_bytes=len(body), is_truncated=len(cut) < len(text) or not is_whole
    )


def cut_text(text: str, max_bytes: int) -> str:
    """Cut ``text`` to at most ``max_bytes`` of UTF-8, between characters."""
    encoded = text.encode()
    return text if len(encoded) <= max_bytes else encoded[:max_bytes].decode(errors="ignore")


def _decoded(body: bytes, *, is_whole: bool) -> str | None:
    """Decode ``body``; None if it is not UTF-8 or has a NUL, which not every database stores as text.

    A truncated body may end within a character.
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
    """Redact ``body``, which is not UTF-8; None if it may have secrets that cannot be found."""
    if not fields:
        return body
    content_type = _first_value(headers, "content-type")
    if _first_value(headers, "content-encoding") not in ("", "identity"):
        return None
    if b"\0" in body and is_looked_into(content_type):  # UTF-16, or UTF-32
        return None
    # Every other encoding that JSON and forms come in has the names of fields in ASCII.
    return redact_body(body.decode("latin-1"), content_type, fields).encode("latin-1")


# -- headers -------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=128)
def _read_head(lines: tuple[bytes, ...]) -> tuple[Header, ...]:
    """Parse raw header lines. Bytes beyond ASCII are read as UTF-8 if they are, else as Latin-1.

    Within a second many heads are the same.
    """
    headers = []
    for line in lines:
        name, colon, value = line.partition(b":")
        if colon:
            headers.append((_readable(name), _readable(value)))
    return tuple(headers)


def _readable(raw: bytes) -> str:
    try:
        text = raw.strip().decode()
    except UnicodeDecodeError:
        text = raw.strip().decode("latin-1")
    return "".join(character if character.isprintable() else "?" for character in text)
