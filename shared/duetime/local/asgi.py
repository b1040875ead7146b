"""The ASGI application of the local server: HTTP in, the Lambda handler in a thread, HTTP out.

Bounds: a body over ``MAX_BATCH_BYTES`` is refused before more than that is held; at most ``MAX_LARGE_BODIES`` are
held at once that have more than ``SMALL_BODY_BYTES`` (further ones wait, unread, and the sockets push back); a body
must arrive in time. So whoever sends slowly, which needs no API key, keeps nobody out whose request is small.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from duetime.api.http.parsing import MAX_BATCH_BYTES
from duetime.api.http.problems import problem_reply
from duetime.api.http.request import Reply
from duetime.domain.clock import Clock
from duetime.domain.errors import InvalidInput, PayloadTooLarge
from duetime.local.gateway import HttpRequest, HttpResponse, from_result, to_event
from duetime.local.together import Together

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
        """Return the time that an HTTP API gives an integration."""
        return 30_000


@runtime_checkable
class SharingHandler(Protocol):
    """A handler that can answer requests together, which is cheaper where they share what they need of the store."""

    def __call__(self, event: dict[str, Any], lambda_context: Any, /) -> dict[str, Any]: ...

    def shares_write(self, event: dict[str, Any], /) -> bool:
        """Tell whether that is so of this one."""
        ...

    def answer_together(self, events: Sequence[dict[str, Any]], /) -> Sequence[dict[str, Any]]: ...


class LambdaAsgiApp:
    """Serves a Lambda handler over ASGI. ``handler`` must be safe to call from many threads at once.

    Small requests that share a write of the store are answered together, others by ``API_THREADS`` threads.
    """

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
        self._together: Together | None = None
        self._sharing: Callable[[dict[str, Any]], bool] = lambda _: False
        if isinstance(handler, SharingHandler):
            self._together, self._sharing = Together(handler.answer_together), handler.shares_write

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
        if self._together is not None:
            self._together.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self.respond(scope, receive)
        if response is not None:
            await send_response(response, send, is_head=scope["method"] == "HEAD")

    async def respond(self, scope: Scope, receive: Receive) -> HttpResponse | None:
        """Return the handler's response to the request; None if the client has disconnected."""
        held: list[asyncio.Semaphore] = []
        try:
            return await self._respond(scope, receive, held)
        except ClientGone:
            return None
        finally:
            for place in held:
                place.release()

    async def _respond(self, scope: Scope, receive: Receive, held: list[asyncio.Semaphore]) -> HttpResponse:
        request_id = self._new_id()
        try:
            body = await self._read(scope, receive, held)
            event = to_event(self._request(scope, body, request_id))
        except TimeoutError:
            return HttpResponse(408, (("connection", "close"),), b"")
        except InvalidInput as error:
            return to_response(problem_reply(error, request_id=request_id))
        try:
            return from_result(await self._handled(event, request_id, is_small=len(body) <= SMALL_BODY_BYTES))
        except Exception as error:
            logger.exception("a request failed", extra={"action": "http.failed", "request_id": request_id})
            return to_response(problem_reply(error, request_id=request_id))

    def _handled(self, event: dict[str, Any], request_id: str, *, is_small: bool) -> Awaitable[dict[str, Any]]:
        if self._together is not None and is_small and self._sharing(event):
            return self._together.ask(event)
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(self._threads, self._handler, event, LocalContext(request_id))

    async def _read(self, scope: Scope, receive: Receive, held: list[asyncio.Semaphore]) -> bytes:
        """Return the whole body. A large one takes a place, which is ``held`` then; waiting for it is not the
        client's fault."""
        loop, seconds = asyncio.get_running_loop(), self._body_timeout_seconds
        parts: list[bytes] = []
        size = 0
        async with asyncio.timeout(seconds) as patience:
            async for part in body_parts(scope, receive, self._max_body_bytes):
                parts.append(part)
                size += len(part)
                if size > SMALL_BODY_BYTES and not held:
                    patience.reschedule(None)
                    await self._places.acquire()
                    held.append(self._places)
                    patience.reschedule(loop.time() + seconds)
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
    """Return the whole body. Raises as ``body_parts`` does."""
    return b"".join([part async for part in body_parts(scope, receive, limit)])


async def body_parts(scope: Scope, receive: Receive, limit: int) -> AsyncIterator[bytes]:
    """Return the body as it arrives; ``PayloadTooLarge`` as soon as it is known to have more than ``limit`` bytes,
    and ``ClientGone``."""
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
    """Send a response. ``is_head``: without the body that a GET would get, so no length is told (RFC 9110, section
    8.6)."""
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in response.headers]
    if response.status not in (204, 304) and not is_head:
        headers.append((b"content-length", str(len(response.body)).encode()))
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await send({"type": "http.response.body", "body": response.body})


def to_response(reply: Reply) -> HttpResponse:
    headers = (("content-type", reply.content_type), *reply.headers.items())
    return HttpResponse(reply.status, headers, reply.body.encode())
