"""Requests and replies: what an HTTP API event (payload format 2.0) means, without its wrapping."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from duetime.api.http.errors import UnsupportedMediaType
from duetime.domain.errors import InvalidInput, PayloadTooLarge
from duetime.domain.principals import Principal

JSON = "application/json"

_REQUEST_ID = re.compile(r"[A-Za-z0-9._:=+/-]{1,128}")
# Possessive: what is given up of one run of spaces would be tried with each length of the next.
_JSON_TYPE = re.compile(
    r'\s*+application/(?:[a-z0-9!#$&^_.-]++\+)?json\s*+(?:;\s*+charset\s*+=\s*+"?utf-?8"?\s*+)?;?\s*+', re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Request:
    """``path`` is decoded and without the stage; ``query`` is raw; header names are in lower case.

    ``request_id`` is the caller's ``X-Request-Id`` when it is a sane one, else the gateway's. ``principal``
    is set before an endpoint sees the request; None in open mode, in which everything is allowed.
    """

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    request_id: str
    body: str
    body_is_base64: bool
    principal: Principal | None = None

    def header(self, name: str) -> str | None:
        return self.headers.get(name)

    def text(self, *, limit_bytes: int) -> str:
        """Return the body; empty when there is none. Raises ``PayloadTooLarge`` or ``InvalidInput`` (not UTF-8)."""
        if self.body_is_base64:
            # Four characters carry three bytes: what is too large is not even decoded.
            if len(self.body) > 4 * (limit_bytes // 3 + 1):
                raise _too_large(limit_bytes)
            try:
                text = base64.b64decode(self.body, validate=True).decode()
            except (binascii.Error, ValueError):
                raise InvalidInput("", "the body is not UTF-8") from None
        else:
            text = self.body
        if utf8_length(text) > limit_bytes:
            raise _too_large(limit_bytes)
        return text

    def json_text(self, *, limit_bytes: int) -> str:
        """Return the body, which must be declared as JSON, or not declared at all."""
        coding = self.headers.get("content-encoding", "").strip().lower()
        if self.body and coding not in ("", "identity"):
            raise UnsupportedMediaType("the body must be sent as it is, without a Content-Encoding")
        text = self.text(limit_bytes=limit_bytes)
        declared = self.headers.get("content-type")
        if declared and text and _JSON_TYPE.fullmatch(declared) is None:
            raise UnsupportedMediaType("the body must be application/json in UTF-8")
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    status: int
    body: str = ""
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)


def read_request(event: Mapping[str, Any], *, new_id: Callable[[], str]) -> Request:
    """Return the request in an event; ``new_id`` is used when it brings no request id of its own."""
    context = event["requestContext"]
    headers = {name.lower(): value for name, value in (event.get("headers") or {}).items()}
    asked_id = headers.get("x-request-id", "")
    is_sane = _REQUEST_ID.fullmatch(asked_id) is not None
    return Request(
        method=context["http"]["method"].upper(),
        # A gateway decodes the path, all but "%25" (docs/decisions/0010).
        path=unquote(_without_stage(event["rawPath"], context.get("stage"))),
        query=event.get("rawQueryString") or "",
        headers=headers,
        request_id=asked_id if is_sane else context.get("requestId") or new_id(),
        body=event.get("body") or "",
        body_is_base64=bool(event.get("isBase64Encoded")),
    )


def _without_stage(path: str, stage: str | None) -> str:
    """Take a named stage away: the first segment of ``rawPath``, unless a custom domain maps it away."""
    prefix = f"/{stage}"
    if not stage or stage == "$default" or not (path == prefix or path.startswith(prefix + "/")):
        return path
    return path[len(prefix) :] or "/"


def utf8_length(text: str) -> int:
    """Return the bytes that ``text`` has in UTF-8. ``InvalidInput`` when it has no UTF-8 form (lone surrogates)."""
    if text.isascii():
        return len(text)
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise InvalidInput("", "the body is not UTF-8") from None


def _too_large(limit_bytes: int) -> PayloadTooLarge:
    return PayloadTooLarge("", f"the body is over {limit_bytes} bytes")
