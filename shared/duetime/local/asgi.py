"""The ASGI application of the local server: HTTP in, the Lambda handler in a thread, HTTP out.

Bounds: a body over ``MAX_BATCH_BYTES`` is refused before more than that is held; at most ``MAX_LARGE_BODIES`` are
held at once that have more than ``SMALL_BODY_BYTES`` (further ones wait, unread, and the sockets push back); a body
must arrive in time. So whoever sends slowly, which needs no API key, keeps nobody out whose request is small.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from duetime.api.http.parsing import MAX_BATCH_BYTES
from duetime.api.http.problems import problem_reply
from duetime.api.http.request import Reply
from duetime.domain.clock import Clock
from duetime.domain.errors import InvalidInput, PayloadTooLarge
from duetime.local.gateway import HttpRequest, HttpResponse, from_result, to_event

SMALL_BODY_BYTES = 64 * 1024
MAX_LARGE_BODIES = 64
API_THREADS = 8
BODY_TIMEOUT_SECONDS = 30.0

Handler = Callable[[dict[str, Any], Any], dict[str, Any]]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]

logger = logging.getLogger(__name__)


class ClientGone(Exception):
    """The client has closed the connection; nobody waits for a response."""


@dataclass(frozen=True, slots=True)
class LocalContext:
    """The part of Lambda's context object that exists without Lambda."""

    aws_request_id: str
    function_name: str = "duetime-local"
    function_version: str = "$LATEST"
    invoked_function_arn: str = "arn:aws:lambda:local:000000000000:function:duetime-local"
    memory_limit_in_mb: int = 1024

    def get_remaining_time_in_millis(self) -> int:
        """The time that an HTTP API gives an integration."""
        return 30_000


class LambdaAsgiApp:
    """Serves a Lambda handler over ASGI. ``handler`` must be safe to call from ``API_THREADS`` threads at once."""

    def __init__(
        self,
        handler: Handler,
        *,
        clock: Clock,
        new_id: Callable[[], str],
        max_body_bytes: int = MAX_BATCH_BYTES,
        body_timeout_seconds: float = BODY_TIMEOUT_SECONDS,
    ) -> None:
        self._handler = handler
        self._clock = clock
        self._new_id = new_id
        self._max_body_bytes = max_body_bytes
        self._body_timeout_seconds = body_timeout_seconds
        self._places = asyncio.Semaphore(MAX_LARGE_BODIES)
        self._threads = ThreadPoolExecutor(API_THREADS, thread_name_prefix="api")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, send)
        else:
            raise ValueError(f"cannot serve {scope['type']!r}")

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        self._threads.shutdown()
        await send({"type": "lifespan.shutdown.complete"})

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self.respond(scope, receive)
        if response is not None:
            await send_response(response, send, is_head=scope["method"] == "HEAD")

    async def respond(self, scope: Scope, receive: Receive) -> HttpResponse | None:
        """Return the handler's response to the request; None if the client has disconnected."""
        async with AsyncExitStack() as stack:
            try:
                return await self._respond(scope, receive, stack)
            except ClientGone:
                return None

    async def _respond(self, scope: Scope, receive: Receive, stack: AsyncExitStack) -> HttpResponse:
        request_id = self._new_id()
        try:
            body = await self._read(scope, receive, stack)
            event = to_event(self._request(scope, body, request_id))
        except TimeoutError:
            return HttpResponse(408, (("connection", "close"),), b"")
        except InvalidInput as error:
            return to_response(problem_reply(error, request_id=request_id))
        try:
            loop = asyncio.get_running_loop()
            return from_result(
                await loop.run_in_executor(self._threads, self._handler, event, LocalContext(request_id))
            )
        except Exception as error:
            logger.exception("a request failed", extra={"action": "http.failed", "request_id": request_id})
            return to_response(problem_reply(error, request_id=request_id))

    async def _read(self, scope: Scope, receive: Receive, stack: AsyncExitStack) -> bytes:
        """The whole body. A large one has a place until ``stack`` ends; waiting for it is not the client's fault."""
        loop, seconds = asyncio.get_running_loop(), self._body_timeout_seconds
        parts: list[bytes] = []
        size, has_place = 0, False
        async with asyncio.timeout(seconds) as patience:
            async for part in body_parts(scope, receive, self._max_body_bytes):
                parts.append(part)
                size += len(part)
                if size > SMALL_BODY_BYTES and not has_place:
                    patience.reschedule(None)
                    await stack.enter_async_context(self._places)
                    patience.reschedule(loop.time() + seconds)
                    has_place = True
        return b"".join(parts)

    def _request(self, scope: Scope, body: bytes, request_id: str) -> HttpRequest:
        client = scope.get("client")
        return HttpRequest(
            method=scope["method"],
            raw_path=scope["raw_path"].decode("latin-1"),
            raw_query=scope["query_string"].decode("latin-1"),
            headers=tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]),
            body=body,
            http_version=scope["http_version"],
            client_host=client[0] if client else "",
            request_id=request_id,
            received_at=self._clock.now(),
        )


async def read_body(scope: Scope, receive: Receive, limit: int) -> bytes:
    """The whole body. Raises as ``body_parts`` does."""
    return b"".join([part async for part in body_parts(scope, receive, limit)])


async def body_parts(scope: Scope, receive: Receive, limit: int) -> AsyncIterator[bytes]:
    """The body as it arrives; ``PayloadTooLarge`` as soon as it is known to have more than ``limit`` bytes, and
    ``ClientGone``."""
    declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
    if int(declared) > limit:  # the server has checked that it is a number
        raise PayloadTooLarge("", f"the body is over {limit} bytes")
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > limit:
            raise PayloadTooLarge("", f"the body is over {limit} bytes")
        yield chunk
        if not message.get("more_body", False):
            return


async def send_response(response: HttpResponse, send: Send, *, is_head: bool = False) -> None:
    """``is_head``: the body that a GET would get is not there, so no length is told (RFC 9110, section 8.6)."""
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in response.headers]
    if response.status not in (204, 304) and not is_head:
        headers.append((b"content-length", str(len(response.body)).encode()))
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await send({"type": "http.response.body", "body": response.body})


def to_response(reply: Reply) -> HttpResponse:
    headers = (("content-type", reply.content_type), *reply.headers.items())
    return HttpResponse(reply.status, headers, reply.body.encode())
