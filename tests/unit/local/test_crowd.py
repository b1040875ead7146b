"""Many connections that say nothing, or not all: over sockets, against a server with few places."""

from __future__ import annotations

import asyncio
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from duetime.local import crowd
from duetime.local.bounded_http import BoundedHttp
from duetime.local.http import bind, http_service

PLACES = 20
WAIT_SECONDS = 30.0
HALF_A_HEAD = b"GET / HTTP/1.1\r\nHost: x\r\n"
HALF_A_BODY = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf"
ASK = b"GET %b HTTP/1.1\r\nHost: x\r\n\r\n"


class Impatient(BoundedHttp):
    crowded_head_seconds = 0.2


class Server:
    """Answers ``/hold`` when it is released, everything else at once. ``held`` counts who waits for that."""

    def __init__(self, listener: socket.socket) -> None:
        self.address = listener.getsockname()
        self.held = threading.Semaphore(0)
        self._release = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            self._loop = asyncio.get_running_loop()
            for event in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{event}.complete"})
            return
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            if not message["more_body"]:
                break
        if scope["path"] == "/hold":
            self.held.release()
            await self._release.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    def release(self) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._release.set)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr("duetime.local.http.BoundedHttp", Impatient)
    monkeypatch.setattr("duetime.local.http.MAX_CONNECTIONS", PLACES)
    started = threading.Event()
    with bind("127.0.0.1", 0) as listener:
        server = Server(listener)
        service = http_service(server, listener, started.set)
        thread = threading.Thread(target=service.work)
        thread.start()
        try:
            assert started.wait(WAIT_SECONDS)
            yield server
        finally:
            server.release()
            service.request_stop()
            thread.join(WAIT_SECONDS)


class Clients:
    """Connections that stay open, and what one more request is answered."""

    def __init__(self, server: Server, stack: ExitStack) -> None:
        self._server = server
        self._stack = stack
        self.connections: list[socket.socket] = []

    def open(self, count: int, begin: bytes) -> None:
        for _ in range(count):
            connection = self._stack.enter_context(socket.create_connection(self._server.address, WAIT_SECONDS))
            connection.sendall(begin)
            self.connections.append(connection)

    def ask(self, path: bytes = b"/") -> bytes:
        """The status line, over a new connection."""
        with socket.create_connection(self._server.address, WAIT_SECONDS) as connection:
            connection.sendall(ASK % path)
            return connection.recv(4096).partition(b"\r\n")[0]

    def closed(self) -> list[int]:
        """The numbers of those that the server has closed."""
        return [
            number
            for number, connection in enumerate(self.connections)
            if select.select([connection], [], [], 0)[0] and connection.recv(4096) == b""
        ]


@pytest.fixture
def clients(server: Server) -> Iterator[Clients]:
    with ExitStack() as stack:
        yield Clients(server, stack)


OK, FULL = b"HTTP/1.1 200 OK", b"HTTP/1.1 503 Service Unavailable"


@pytest.mark.parametrize("begin", [b"", HALF_A_HEAD, HALF_A_BODY], ids=["nothing", "half a head", "half a body"])
def test_half_open_requests_shut_nobody_out(clients: Clients, begin: bytes) -> None:
    """More of them than there are places, and nobody has a key yet."""
    clients.open(3 * PLACES, begin)
    for path in (b"/", b"/health", b"/?a=b"):
        assert clients.ask(path) == OK


def test_those_that_wait_for_longest_give_way(clients: Clients) -> None:
    clients.open(PLACES + 5, HALF_A_HEAD)
    assert clients.ask() == OK
    assert clients.closed() == list(range(6))


def test_idle_connections_give_way_too(clients: Clients) -> None:
    for _ in range(PLACES):
        clients.open(1, ASK % b"/")
        assert clients.connections[-1].recv(4096).startswith(OK)
    assert clients.ask() == OK
    assert clients.closed() == [0]


def test_requests_that_have_arrived_are_bounded_and_health_is_told_all_the_same(
    server: Server, clients: Clients
) -> None:
    clients.open(PLACES, ASK % b"/hold")
    for _ in range(PLACES):
        assert server.held.acquire(timeout=WAIT_SECONDS)
    assert clients.ask(b"/") == FULL
    assert clients.ask(b"/healthy") == FULL
    assert clients.ask(b"/health") == OK
    assert clients.ask(b"/health?verbose=1") == OK
    server.release()
    for connection in clients.connections:
        assert connection.recv(4096).startswith(OK)
    assert clients.ask(b"/") == OK


def test_a_peer_has_few_requests_half_open_for_long(clients: Clients, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crowd, "MAX_HALF_OPEN_PER_PEER", 4)
    clients.open(12, HALF_A_HEAD)
    pause = threading.Event()
    for _ in range(200):
        if len(clients.closed()) >= 8:
            break
        pause.wait(0.05)
    assert clients.closed() == list(range(4, 12))


def test_what_comes_at_once_is_no_half_open_request(clients: Clients, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crowd, "MAX_HALF_OPEN_PER_PEER", 4)
    clients.open(PLACES, ASK % b"/")
    for connection in clients.connections:
        assert connection.recv(4096).startswith(OK)
    pause = threading.Event()
    pause.wait(3 * Impatient.crowded_head_seconds)
    assert clients.closed() == []
