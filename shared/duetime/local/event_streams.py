"""The events of a service call as server-sent events, beside the API that lists them as JSON.

``GET .../events`` with ``Accept: text/event-stream`` goes through the handler of the API first: that says who may
see the call, what is wrong with the request, and what the first events are. Then the stream goes on from there.

A stream costs no thread while it waits: it is a task that looks for further events every now and then, more rarely
the longer there are none, through threads that all streams share. Each look checks the API key first, as a request of
its own would: a key that was deleted or has expired ends the stream. No stream is longer than ``lifetime_seconds``;
its client comes back with ``Last-Event-ID``.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol

from duetime.api.http.errors import TooManyStreams, Unauthenticated
from duetime.api.http.problems import problem_reply
from duetime.api.service_calls.lists import is_complete
from duetime.domain.call_events import CallEvent
from duetime.domain.clock import Clock
from duetime.domain.errors import CallUnreadable, StoreError
from duetime.domain.principals import Principal
from duetime.engine.waiting import Offload
from duetime.local.asgi import Receive, Scope, Send, send_response, to_response
from duetime.local.gateway import HttpResponse
from duetime.stores.core.calls import CallStore
from duetime.stores.port.calls import CallRef

EVENT_STREAM: Final = "text/event-stream"
THREADS: Final = 2
"""For the store calls of all streams."""

_PATH = re.compile(r"/v1/tenants/([A-Za-z0-9._-]+)/service-calls/([0-9a-f-]+)/events")
_PAGE = 100
_HEARTBEAT = b": still here\n\n"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSettings:
    """``first_interval_seconds``: how soon after an event the next one is looked for; doubled up to the last one.

    ``send_seconds``: how long a client may leave what is sent unread. ``retry_ms``: when a client that has lost its
    stream should come back.
    """

    max_streams: int = 100
    max_streams_per_tenant: int = 80
    first_interval_seconds: float = 0.25
    last_interval_seconds: float = 2.0
    heartbeat_seconds: float = 15.0
    lifetime_seconds: float = 600.0
    send_seconds: float = 30.0
    retry_ms: int = 2000


class RespondingApp(Protocol):
    """``local.asgi.LambdaAsgiApp``: an ASGI application that can also return its response instead of sending it."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...

    async def respond(self, scope: Scope, receive: Receive) -> HttpResponse | None: ...


class Authenticator(Protocol):
    """``api.authentication.KeyAuthenticator``."""

    def authenticate(self, header: str | None) -> Principal: ...


class EventStreams:
    """An ASGI application: serves requests for a stream, and leaves everything else to ``app``.

    ``authenticator``: that of ``app``; None in open mode.
    """

    def __init__(
        self,
        app: RespondingApp,
        calls: CallStore,
        *,
        clock: Clock,
        offload: Offload,
        authenticator: Authenticator | None = None,
        settings: StreamSettings = StreamSettings(),
    ) -> None:
        self._app = app
        self._calls = calls
        self._authenticator = authenticator
        self._clock = clock
        self._offload = offload
        self._settings = settings
        self._open: Counter[str] = Counter()
        """By tenant."""
        self._stop = _Stop()

    def stop(self) -> None:
        """End all streams, now and from now on, so that nobody waits for them. From any thread."""
        self._stop.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        ref = _wanted(scope)
        if ref is None:
            await self._app(scope, receive, send)
            return
        first = await self._app.respond(scope, receive)
        if first is None:
            return
        if first.status != 200:
            await send_response(first, send)
            return
        page = json.loads(first.body)
        if page["complete"] and not page["items"]:
            # By this status a client knows that it need not come back.
            await send_response(HttpResponse(204, _kept(first), b""), send)
        elif (error := self._refusal(ref.tenant_id)) is not None:
            reply = problem_reply(error, request_id=dict(first.headers)["x-request-id"])
            await send_response(to_response(reply), send)
        else:
            self._open[ref.tenant_id] += 1
            try:
                await self._stream(ref, page, first, self._check_of(scope), receive, send)
            finally:
                self._open[ref.tenant_id] -= 1
                self._open += Counter()  # forgets whom it has none of

    def _check_of(self, scope: Scope) -> Callable[[], object]:
        """Return a function that raises ``Unauthenticated`` once the key of the request is not valid any more."""
        authenticator = self._authenticator
        if authenticator is None:
            return lambda: None
        header = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"authorization"), None)
        return lambda: authenticator.authenticate(header)

    def _refusal(self, tenant_id: str) -> TooManyStreams | None:
        if self._open.total() >= self._settings.max_streams:
            return TooManyStreams("as many streams are served as can be at once")
        if self._open[tenant_id] >= self._settings.max_streams_per_tenant:
            return TooManyStreams(f"the tenant has {self._open[tenant_id]} streams, which is the most")
        return None

    async def _stream(
        self,
        ref: CallRef,
        page: dict[str, Any],
        first: HttpResponse,
        check_key: Callable[[], object],
        receive: Receive,
        send: Send,
    ) -> None:
        headers = (
            ("content-type", f"{EVENT_STREAM}; charset=utf-8"),
            ("cache-control", "no-store"),
            ("x-accel-buffering", "no"),  # for proxies that would wait for more
            *_kept(first),
        )
        encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        await send({"type": "http.response.start", "status": 200, "headers": encoded})
        gone = asyncio.ensure_future(_disconnected(receive))
        stopping = asyncio.ensure_future(self._stop.wait())
        started = self._clock.monotonic()
        look = _Look(ref, self._calls, check_key, self._clock)
        stream = _Stream(look, send, offload=self._offload, settings=self._settings)
        following = asyncio.ensure_future(stream.follow(page))
        try:
            await asyncio.wait({following, gone, stopping}, return_when=asyncio.FIRST_COMPLETED)
            reason = following.result() if following.done() else "gone" if gone.done() else "stopped"
        finally:
            for task in (following, gone, stopping):
                task.cancel()
            await asyncio.gather(following, gone, stopping, return_exceptions=True)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.send_seconds):
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        facts = {
            "action": "events.streamed",
            "tenant_id": ref.tenant_id,
            "service_call_id": ref.call_id,
            "sent": stream.sent,
            "seconds": round(self._clock.monotonic() - started, 3),
            "reason": reason,
        }
        logger.info("a stream of events ended", extra=facts)


@dataclass(frozen=True, slots=True)
class _Found:
    """Further events; ``complete``: nothing follows them."""

    events: list[CallEvent]
    complete: bool


class _Look:
    """Polls the store for further events of a call. Runs in a thread."""

    def __init__(self, ref: CallRef, calls: CallStore, check_key: Callable[[], object], clock: Clock) -> None:
        self.ref = ref
        self._calls = calls
        self._check_key = check_key
        self._clock = clock

    def events_after(self, after: int) -> _Found | None:
        """Return further events; None if the call was removed. Raises ``Unauthenticated`` and ``StoreError``.

        Reads the call first, and events only if it has more: a quiet stream costs one read per poll.
        """
        self._check_key()
        try:
            (call,) = self._calls.get([self.ref], now=self._clock.now())
        except CallUnreadable:  # its events may be readable, and one of them tells of its end
            events = self._list(after)
            return _Found(events, any(event.type.is_terminal for event in events))
        if call is None:
            return None
        events = [] if call.event_count <= after else self._list(after)
        return _Found(events, is_complete(call, events))

    def _list(self, after: int) -> list[CallEvent]:
        return self._calls.list_events(self.ref.tenant_id, self.ref.call_id, after=after, limit=_PAGE)


class _Stream:
    """One stream. ``sent`` counts its events."""

    def __init__(self, look: _Look, send: Send, *, offload: Offload, settings: StreamSettings) -> None:
        self._look = look
        self._send = send
        self._offload = offload
        self._settings = settings
        self._written_at = 0.0
        self.sent = 0

    async def follow(self, page: dict[str, Any]) -> str:
        """Send the events of ``page`` (a response of the list, as JSON) and all that come after them.

        Returns why it ended: ``finished``, ``removed``, ``unauthenticated``, ``lifetime`` or ``unread``. Of the first
        two the client is told, since there is nothing to come back for; after the third it is refused when it does.
        """
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + self._settings.lifetime_seconds
        try:
            await self._write(f"retry: {self._settings.retry_ms}\n\n".encode())
            await self._write_events(page["items"])
            if page["complete"]:
                return await self._end("finished")
            after = page["nextAfter"]
            interval = self._settings.first_interval_seconds
            while loop.time() < ends_at:
                found = await self._read(after)
                if found is None:
                    return await self._end("removed")
                await self._write_events([event.document() for event in found.events])
                if found.complete:
                    return await self._end("finished")
                if found.events:
                    after = found.events[-1].sequence
                    interval = self._settings.first_interval_seconds
                    continue
                if loop.time() - self._written_at >= self._settings.heartbeat_seconds:
                    await self._write(_HEARTBEAT)
                await asyncio.sleep(interval)
                interval = min(2 * interval, self._settings.last_interval_seconds)
        except TimeoutError:
            return "unread"
        except Unauthenticated:
            return "unauthenticated"
        return "lifetime"

    async def _read(self, after: int) -> _Found | None:
        try:
            return await self._offload.run(lambda: self._look.events_after(after))
        except StoreError as error:
            self._warn(error)
            return _Found([], complete=False)

    def _warn(self, error: StoreError) -> None:
        facts = {"action": "events.unread", "service_call_id": self._look.ref.call_id, "error": error.code}
        logger.warning("the events of a stream could not be read", extra=facts)

    async def _write_events(self, documents: Sequence[dict[str, Any]]) -> None:
        if documents:
            await self._write(b"".join(map(_event_bytes, documents)))
            self.sent += len(documents)

    async def _end(self, reason: str) -> str:
        """Tell the client not to come back."""
        await self._write(f'event: end\ndata: {{"reason":"{reason}"}}\n\n'.encode())
        return reason

    async def _write(self, text: bytes) -> None:
        async with asyncio.timeout(self._settings.send_seconds):
            await self._send({"type": "http.response.body", "body": text, "more_body": True})
        self._written_at = asyncio.get_running_loop().time()


class _Stop:
    """An event that may be set from any thread, before or after somebody waits for it."""

    def __init__(self) -> None:
        self._is_set = False
        self._waiting: dict[asyncio.Future[None], asyncio.AbstractEventLoop] = {}

    def set(self) -> None:
        self._is_set = True
        for future, loop in list(self._waiting.items()):
            with suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(_finish, future)

    async def wait(self) -> None:
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        self._waiting[future] = loop
        try:
            if not self._is_set:
                await future
        finally:
            del self._waiting[future]


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _wanted(scope: Scope) -> CallRef | None:
    """Return the call whose events are wanted as a stream; None when something else is."""
    if scope["type"] != "http" or scope["method"] != "GET":
        return None
    accepted = b",".join(value for name, value in scope["headers"] if name == b"accept")
    match = _PATH.fullmatch(scope["path"])
    if match is None or EVENT_STREAM not in accepted.decode("latin-1").lower():
        return None
    return CallRef(match[1], match[2])


def _kept(first: HttpResponse) -> tuple[tuple[str, str], ...]:
    """Return the headers of the first response that apply to the stream."""
    return tuple(header for header in first.headers if header[0] == "x-request-id")


def _event_bytes(document: dict[str, Any]) -> bytes:
    """Encode an event under the name of its type, so that a browser can listen to one type.

    JSON text has no line breaks, so it is one line of data.
    """
    data = json.dumps(document, separators=(",", ":"))
    return f"id: {document['sequence']}\nevent: {document['type']}\ndata: {data}\n\n".encode()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
