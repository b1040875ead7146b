"""``duetime listen``: a receiver of callbacks that shows what arrives, for trying things out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from duetime.domain.clock import Clock
from duetime.domain.errors import InvalidSettings, PayloadTooLarge
from duetime.domain.secrets import parse_secret
from duetime.domain.times import format_instant, parse_instant
from duetime.local.asgi import ClientGone, Receive, Scope, Send, read_body, send_response
from duetime.local.gateway import HttpResponse
from duetime.local.http import bind, http_service, url_of
from duetime.local.services import run_services
from duetime_client.webhooks import VerificationError, verify, verify_schedule

MAX_BODY_BYTES = 1024 * 1024
MAX_SHOWN_CHARACTERS = 4000

# What every HTTP client sends says nothing about a callback.
_DULL_HEADERS = frozenset(
    {"accept", "accept-encoding", "connection", "content-length", "content-type", "host", "user-agent"}
)
_CALLBACK_FIELDS = frozenset({"namespace", "executeAt", "firedAt", "attempt", "payload"})


@dataclass(frozen=True, slots=True)
class Reply:
    """The response to every request."""

    status: int = 200
    body: str = ""
    delay_seconds: float = 0.0


class Listener:
    """The ASGI application. ``show`` gets one block of text for each request, in the order of arrival."""

    def __init__(
        self, reply: Reply, *, clock: Clock, show: Callable[[str], None], secrets: Sequence[str] = ()
    ) -> None:
        """``secrets`` (``whsec_...``): what callbacks should be signed with; their signatures are then checked."""
        self._reply = reply
        self._secrets = secrets
        self._clock = clock
        self._show = show
        self._number = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            for event in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{event}.complete"})
            return
        received_at = self._clock.now()
        reply = self._reply
        try:
            body = await read_body(scope, receive, MAX_BODY_BYTES)
        except ClientGone:
            return
        except PayloadTooLarge:
            body, reply = b"", Reply(413)
        self._number += 1
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
        self._show(
            describe(
                f"#{self._number}  {format_instant(received_at)}  {scope['method']} {scope['path']}",
                headers,
                body,
                received_at=received_at,
                reply=reply,
                signature=self._judge(body, headers, received_at) if self._secrets else None,
            )
        )
        await asyncio.sleep(reply.delay_seconds)
        content = (("content-type", "application/json"),) if reply.body else ()
        await send_response(HttpResponse(reply.status, content, reply.body.encode()), send)

    def _judge(self, body: bytes, headers: Sequence[tuple[str, str]], now: datetime) -> str:
        try:
            is_of_schedule = "scheduleId" in (_read_callback(body) or {})
            (verify_schedule if is_of_schedule else verify)(body, dict(headers), self._secrets, now=now)
        except VerificationError as error:
            return f"NOT VALID: {error}"
        return "valid"


def describe(
    title: str,
    headers: Sequence[tuple[str, str]],
    body: bytes,
    *,
    received_at: datetime,
    reply: Reply,
    signature: str | None = None,
) -> str:
    """Describe one request as a block of lines. Nothing in it can move the terminal's cursor."""
    callback = _read_callback(body)
    if callback is None:
        rows = [("body", body.decode(errors="replace"))]
    else:
        late_ms = round((received_at - parse_instant(callback["executeAt"])).total_seconds() * 1000)
        rows = [
            _source(callback),
            ("attempt", str(callback["attempt"])),
            ("due", f"{callback['executeAt']}, {late_ms} ms ago"),
            ("payload", json.dumps(callback["payload"], ensure_ascii=False)),
        ]
        if isinstance(callback.get("ackUrl"), str):
            rows.append(("ackUrl", callback["ackUrl"]))
    if signature is not None:
        rows.append(("signed", signature))
    rows += [("header", f"{name}: {value}") for name, value in headers if name not in _DULL_HEADERS]
    rows.append(("response", f"{reply.status} {reply.body}".rstrip()))
    return "\n".join([_printable(title), *(f"    {name:<8} {_printable(value)}" for name, value in rows)])


def _source(callback: Mapping[str, Any]) -> tuple[str, str]:
    """Return what is due: a timer, or an occurrence of a schedule."""
    namespace = callback["namespace"]
    if "scheduleId" not in callback:
        return "timer", f"{namespace}/{callback['timerId']}"
    occurrence = f"{callback.get('occurrence')} of {callback.get('scheduledAt')}"
    return "schedule", f"{namespace}/{callback['scheduleId']}, occurrence {occurrence}"


def _read_callback(body: bytes) -> Mapping[str, Any] | None:
    """Return the body if it is a callback of Duetime's, else None."""
    try:
        callback = json.loads(body)
        if not isinstance(callback, dict) or not callback.keys() >= _CALLBACK_FIELDS:
            return None
        if not callback.keys() & {"timerId", "scheduleId"}:
            return None
        parse_instant(callback["executeAt"])
    except (ValueError, TypeError, RecursionError):  # also what is not UTF-8
        return None
    return callback


def _printable(text: str) -> str:
    shown = (
        text if len(text) <= MAX_SHOWN_CHARACTERS else f"{text[:MAX_SHOWN_CHARACTERS]}... ({len(text)} characters)"
    )
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in shown)


def listen(
    host: str, port: int, reply: Reply, *, clock: Clock, show: Callable[[str], None], secrets: Sequence[str] = ()
) -> int:
    """Receive until a signal; the exit code. Raises ``CannotListen``, and ``InvalidSettings`` for a bad secret."""
    for secret in secrets:
        try:
            parse_secret(secret)
        except ValueError as error:
            raise InvalidSettings(f"--secret: {error}") from None
    with bind(host, port) as listener:
        url = url_of(listener)
        service = http_service(
            Listener(reply, clock=clock, show=show, secrets=secrets),
            listener,
            lambda: show(f"listening on {url} (any path; Ctrl-C ends)"),
        )
        return run_services([service], stop_seconds=reply.delay_seconds + 15.0)
