"""Translates requests and responses as API Gateway does for HTTP APIs with payload format 2.0.

So one Lambda handler serves the local server and AWS. Sources: the documentation of the payload format, and decision
0010 for what it leaves open (percent-encoding).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import parse_qsl, unquote

from duetime.domain.errors import InvalidInput
from duetime.domain.times import to_milliseconds
from duetime.runtime.ids import new_id
from duetime.runtime.wiring import Handler

MAX_QUERY_FIELDS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """A request as a server reads it. ``raw_path`` and ``raw_query`` are still percent-encoded."""

    method: str
    raw_path: str
    raw_query: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    http_version: str
    client_host: str
    request_id: str
    received_at: datetime


@dataclass(frozen=True, slots=True)
class HttpResponse:
    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


def ask(
    handler: Handler,
    method: str,
    target: str,
    *,
    headers: Iterable[tuple[str, str]],
    body: bytes,
    received_at: datetime,
) -> HttpResponse:
    """Ask ``handler`` in this process, as a client on this machine would.

    ``target``: path and query, percent-encoded. Raises ``InvalidInput``.
    """
    path, _, query = target.partition("?")
    request = HttpRequest(
        method=method,
        raw_path=path,
        raw_query=query,
        headers=tuple(headers),
        body=body,
        http_version="1.1",
        client_host="127.0.0.1",
        request_id=new_id(),
        received_at=received_at,
    )
    return from_result(handler(to_event(request), None))


def to_event(request: HttpRequest) -> dict[str, Any]:
    """Return the event that the gateway would invoke the function with. Raises ``InvalidInput``."""
    path = _decode_path(request.raw_path)
    headers, cookies = _join_headers(request.headers)
    body, is_base64 = _encode_body(request.body, headers.get("content-type", ""))
    host = headers.get("host", "localhost")
    event: dict[str, Any] = {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": path,
        "rawQueryString": request.raw_query,
        "headers": headers,
        "requestContext": {
            "accountId": "000000000000",
            "apiId": "local",
            "domainName": host,
            "domainPrefix": host.split(".")[0],
            "http": {
                "method": request.method,
                "path": path,
                "protocol": f"HTTP/{request.http_version}",
                "sourceIp": request.client_host,
                "userAgent": headers.get("user-agent", ""),
            },
            "requestId": request.request_id,
            "routeKey": "$default",
            "stage": "$default",
            "time": request.received_at.strftime("%d/%b/%Y:%H:%M:%S +0000"),
            "timeEpoch": to_milliseconds(request.received_at),
        },
        "isBase64Encoded": is_base64,
    }
    # The gateway leaves out what a request does not have.
    if cookies:
        event["cookies"] = cookies
    if request.raw_query and (parameters := _query_parameters(request.raw_query)):
        event["queryStringParameters"] = parameters
    if body is not None:
        event["body"] = body
    return event


def from_result(result: Mapping[str, Any]) -> HttpResponse:
    """Make the HTTP response of what a handler returned, as the gateway does."""
    text = result.get("body") or ""
    try:
        body = base64.b64decode(text) if result.get("isBase64Encoded") else text.encode()
    except (binascii.Error, UnicodeEncodeError) as error:
        raise ValueError("the handler returned a body that cannot be encoded") from error
    headers = [(name.lower(), str(value)) for name, value in (result.get("headers") or {}).items()]
    headers += [("set-cookie", cookie) for cookie in result.get("cookies") or ()]
    return HttpResponse(status=int(result["statusCode"]), headers=tuple(headers), body=body)


def _decode_path(raw_path: str) -> str:
    """Decode all but ``%25``, as the gateway does: a handler that decodes once more gets what was meant."""
    try:
        return unquote(raw_path.replace("%25", "%2525"), errors="strict")
    except UnicodeDecodeError:
        raise InvalidInput("", "the path is not percent-encoded UTF-8") from None


def _query_parameters(raw_query: str) -> dict[str, str]:
    """Decode the query; the values of a name that comes more than once are joined with commas."""
    try:
        pairs = parse_qsl(raw_query, keep_blank_values=True, max_num_fields=MAX_QUERY_FIELDS, errors="strict")
    except UnicodeDecodeError:
        raise InvalidInput("", "the query is not percent-encoded UTF-8") from None
    except ValueError:
        raise InvalidInput("", f"the query has more than {MAX_QUERY_FIELDS} fields") from None
    return _join(pairs, ",")


def _join_headers(pairs: Iterable[tuple[str, str]]) -> tuple[dict[str, str], list[str]]:
    """Return the headers by lower-case name, repeated ones joined with commas; and the cookies, no header here."""
    lowered = [(name.lower(), value) for name, value in pairs]
    cookies = [part.strip() for name, value in lowered if name == "cookie" for part in value.split(";")]
    return _join((pair for pair in lowered if pair[0] != "cookie"), ","), cookies


def _join(pairs: Iterable[tuple[str, str]], separator: str) -> dict[str, str]:
    joined: dict[str, str] = {}
    for name, value in pairs:
        joined[name] = f"{joined[name]}{separator}{value}" if name in joined else value
    return joined


def _encode_body(body: bytes, content_type: str) -> tuple[str | None, bool]:
    """Return the body as text where its media type is text and it is UTF-8, else in base 64."""
    if not body:
        return None, False
    media_type = content_type.partition(";")[0].strip().lower()
    is_text = media_type.startswith("text/") or media_type.endswith(("json", "xml", "javascript"))
    if is_text:
        try:
            return body.decode(), False
        except UnicodeDecodeError:
            pass
    return base64.b64encode(body).decode("ascii"), True
