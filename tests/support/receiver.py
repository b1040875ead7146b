"""A callback receiver that tests script: a real HTTP server on loopback, in a thread of its own.

    with Receiver() as receiver:
        receiver.on("/hook", reply(503), reply(200))
        ... something POSTs to receiver.url("/hook") ...
        first, second = receiver.wait_for(2)

Every path answers an empty 200 until it is told otherwise; the last answer of a script repeats. ``callbacks`` reads
what arrives as callbacks.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

WAIT_SECONDS = 30.0


@dataclass(frozen=True)
class Received:
    """A request as it came in; header names in lower case, in order. ``connection`` counts from 1."""

    method: str
    path: str
    version: str
    headers: list[tuple[str, str]]
    body: bytes
    connection: int

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key == name), None)


@dataclass
class Exchange:
    """One request and the connection to answer it on."""

    request: Received
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()


Answer = Callable[[Exchange], Awaitable[None]]


class Gate:
    """Holds answers back until it is opened; for ``held``."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_open = False
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    def open(self) -> None:
        with self._lock:
            self._is_open = True
            for loop, event in self._waiting:
                loop.call_soon_threadsafe(event.set)

    async def passed(self) -> None:
        event = asyncio.Event()
        with self._lock:
            if self._is_open:
                return
            self._waiting.append((asyncio.get_running_loop(), event))
        await event.wait()


def reply(status: int = 200, body: bytes = b"", headers: Sequence[tuple[str, str]] = ()) -> Answer:
    """A well-formed answer on a connection that stays open."""
    lines = [f"HTTP/1.1 {status} Status", *(f"{name}: {value}" for name, value in headers)]
    lines.append(f"Content-Length: {len(body)}")
    return raw("\r\n".join(lines).encode() + b"\r\n\r\n" + body)


def raw(data: bytes, *, close: bool = False) -> Answer:
    """Exactly these bytes."""

    async def answer(exchange: Exchange) -> None:
        await exchange.send(data)
        if close:
            exchange.writer.close()

    return answer


def held(gate: Gate, then: Answer | None = None) -> Answer:
    """``then`` (an empty 200) once ``gate`` is open; for ever silent if it never is."""

    async def answer(exchange: Exchange) -> None:
        await gate.passed()
        await (then or reply())(exchange)

    return answer


def drip(start: bytes, drop: bytes, *, interval_seconds: float = 0.005) -> Answer:
    """``start``, then ``drop`` again and again until the other side goes away."""

    async def answer(exchange: Exchange) -> None:
        await exchange.send(start)
        while True:
            await exchange.send(drop)
            await asyncio.sleep(interval_seconds)

    return answer


async def reset(exchange: Exchange) -> None:
    """Answer with a TCP reset."""
    connection: socket.socket = exchange.writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    exchange.writer.transport.abort()


async def hang_up(exchange: Exchange) -> None:
    """Close without a word."""
    exchange.writer.close()


@dataclass
class Receiver:
    tls: ssl.SSLContext | None = None
    default: Answer = field(default_factory=reply)
    """Of paths without a script."""
    requests: list[Received] = field(default_factory=list)
    connections: int = 0
    ended: int = 0
    _scripts: dict[str, list[Answer]] = field(default_factory=dict)
    _changed: threading.Condition = field(default_factory=threading.Condition)

    # -- for tests -------------------------------------------------------------------------------------------

    def url(self, path: str = "/") -> str:
        return f"{'https' if self.tls else 'http'}://localhost:{self.port}{path}"

    def on(self, path: str, *answers: Answer) -> str:
        """Answer requests for ``path`` with these in turn. Returns the URL."""
        self._scripts[path] = list(answers)
        return self.url(path)

    def wait_for(self, count: int, *, path: str | None = None) -> list[Received]:
        """The requests (for ``path``) so far, once there are ``count``; fails when they do not come."""

        def found() -> list[Received]:
            return [request for request in self.requests if path in (None, request.path)]

        with self._changed:
            if not self._changed.wait_for(lambda: len(found()) >= count, WAIT_SECONDS):
                raise AssertionError(f"{len(found())} of {count} requests arrived")
            return found()

    def wait_for_ends(self, count: int) -> None:
        """Until ``count`` connections have ended on this side."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.ended >= count, WAIT_SECONDS):
                raise AssertionError(f"{self.ended} of {count} connections ended")

    # -- life ------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(started)), name="receiver")
        self._thread.start()
        assert started.wait(WAIT_SECONDS)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(WAIT_SECONDS)

    async def _serve(self, started: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._talks: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        end = None if self.tls is None else 0.1  # for the other side to say goodbye as well
        server = await asyncio.start_server(
            self._accept, "127.0.0.1", 0, ssl=self.tls, ssl_shutdown_timeout=end, backlog=2048
        )
        self.port = server.sockets[0].getsockname()[1]
        started.set()
        await self._stop.wait()
        # Asked before: in Python 3.11 a closed server does not wait for its connections.
        closed = asyncio.create_task(server.wait_closed())
        await asyncio.sleep(0)
        server.close()
        await asyncio.sleep(0)  # what was just accepted becomes a talk
        for task, writer in list(self._talks.items()):
            task.cancel()
            with contextlib.suppress(AttributeError):  # of TLS in Python 3.11, when it was closed twice before
                writer.transport.abort()
        await asyncio.gather(*self._talks, return_exceptions=True)
        await closed

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = self._loop.create_task(self._talk(reader, writer, self.connections))
        self._talks[task] = writer
        task.add_done_callback(self._talks.pop)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: int) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            try:
                while not writer.is_closing():
                    request = await _read(reader, connection)
                    with self._changed:
                        self.requests.append(request)
                        self._changed.notify_all()
                    await self._next_answer(request.path)(Exchange(request, writer))
            finally:
                writer.close()
                with contextlib.suppress(ConnectionError, ssl.SSLError, TimeoutError):
                    await writer.wait_closed()
                with self._changed:
                    self.ended += 1
                    self._changed.notify_all()

    def _next_answer(self, path: str) -> Answer:
        script = self._scripts.get(path)
        if not script:
            return self.default
        return script.pop(0) if len(script) > 1 else script[0]


async def _read(reader: asyncio.StreamReader, connection: int) -> Received:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, path, version = head[0].split(" ")
    headers = [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in head[1:-2])]
    body = await reader.readexactly(int(dict(headers).get("content-length", "0")))
    return Received(method, path, version, headers, body, connection)
