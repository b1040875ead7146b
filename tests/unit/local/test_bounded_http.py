"""Heads that do not end, and connections on which none comes: over sockets, as uvicorn gets them."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from duetime.local.bounded_http import MAX_HEAD_BYTES, BoundedHttp
from duetime.local.http import bind, http_service

WAIT_SECONDS = 20.0
ASK = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


class Impatient(BoundedHttp):
    head_seconds = 1.0

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.timeout_keep_alive = 1.0  # type: ignore[assignment]


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Answers a request with how many bytes its body had."""
    if scope["type"] == "lifespan":
        for event in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{event}.complete"})
        return
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        size, more = size + len(message["body"]), message["more_body"]
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"7")]})
    await send({"type": "http.response.body", "body": f"{size:07}".encode()})


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int]]:
    with served_by(Impatient, monkeypatch) as address:
        yield address


@contextmanager
def served_by(protocol: type[BoundedHttp], monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int]]:
    monkeypatch.setattr("duetime.local.http.BoundedHttp", protocol)
    started = threading.Event()
    with bind("127.0.0.1", 0) as listener:
        service = http_service(app, listener, started.set)
        thread = threading.Thread(target=service.work)
        thread.start()
        try:
            assert started.wait(WAIT_SECONDS)
            yield listener.getsockname()
        finally:
            service.request_stop()
            thread.join(WAIT_SECONDS)


def connected(address: tuple[str, int]) -> socket.socket:
    return socket.create_connection(address, WAIT_SECONDS)


def all_of(connection: socket.socket) -> bytes:
    """What comes until the server closes."""
    received = b""
    try:
        while data := connection.recv(65536):
            received += data
    except ConnectionResetError:
        pass
    return received


def send_on(connection: socket.socket, piece: bytes, total: int) -> None:
    try:
        for _ in range(total // len(piece)):
            connection.sendall(piece)
    except (ConnectionResetError, BrokenPipeError):
        pass


@pytest.mark.parametrize(
    "begin",
    [b"GET /", b"GET / HTTP/1.1\r\nHost: x\r\nX-Long: ", b"GET / HTTP/1.1\r\nX-"],
    ids=["target", "value", "name"],
)
def test_a_head_that_does_not_end_is_not_kept(address: tuple[str, int], begin: bytes) -> None:
    with connected(address) as connection:
        connection.sendall(begin)
        send_on(connection, b"a" * 8192, 40 * MAX_HEAD_BYTES)
        assert all_of(connection)[:12] in (b"HTTP/1.1 431", b"")  # a reset may overtake the answer


def test_many_headers_are_as_much_as_a_long_one(address: tuple[str, int]) -> None:
    with connected(address) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n")
        send_on(connection, b"a: b\r\n" * 1000, 40 * MAX_HEAD_BYTES)
        assert all_of(connection)[:12] in (b"HTTP/1.1 431", b"")


@pytest.mark.parametrize("begin", [b"0\r\nX-Trailer: ", b"1;"], ids=["trailer", "extension"])
def test_nor_is_what_frames_a_body(address: tuple[str, int], begin: bytes) -> None:
    with connected(address) as connection:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + begin)
        send_on(connection, b"a" * 8192, 40 * MAX_HEAD_BYTES)
        assert b"HTTP/1.1 200" not in all_of(connection)


def test_large_heads_and_bodies_within_bounds_pass(address: tuple[str, int]) -> None:
    length = 5 * MAX_HEAD_BYTES
    with connected(address) as connection:
        for _ in range(3):  # one after the other over one connection
            connection.sendall(
                b"POST / HTTP/1.1\r\nX-Long: " + b"a" * 40_000 + b"\r\nContent-Length: %d\r\n\r\n" % length
            )
            send_on(connection, b"b" * 8192, length)
            answer = b""
            while not answer.endswith(f"{length:07}".encode()):
                answer += connection.recv(4096)
            assert answer.startswith(b"HTTP/1.1 200")


class Wire(asyncio.Transport):
    """A connection whose pieces the test cuts."""

    def __init__(self) -> None:
        super().__init__()
        self.is_closed = False

    def write(self, data: Any) -> None:
        pass

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


def is_closed_by(*pieces: bytes) -> bool:
    """Whether the server closes a connection that brings these."""

    async def main() -> bool:
        config = uvicorn.Config(app, loop="asyncio", ws="none", log_config=None)
        config.load()
        protocol = BoundedHttp(config=config, server_state=ServerState(), app_state={})
        wire = Wire()
        protocol.connection_made(wire)
        for piece in pieces:
            protocol.data_received(piece)
            await asyncio.sleep(0)
        is_closed = wire.is_closed
        protocol.connection_lost(None)
        return is_closed

    return asyncio.run(main())


POST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"


def test_the_rest_of_a_body_is_no_part_of_the_next_head() -> None:
    """A client that was refused early sends its body to the end, and the next request behind it."""
    body = b"b" * (3 * MAX_HEAD_BYTES)
    assert not is_closed_by(POST % len(body) + body[:9], body[9:] + ASK)
    assert not is_closed_by(POST % len(body) + body[:9], body[9:] + ASK[:-2], ASK[-2:] + ASK)


def test_requests_that_arrive_together_are_bounded_each_by_itself() -> None:
    assert not is_closed_by(ASK * (2 * MAX_HEAD_BYTES // len(ASK)))


def test_what_begins_within_a_piece_has_its_bound_all_the_same() -> None:
    piece = b"a" * (MAX_HEAD_BYTES + 1)
    assert is_closed_by(ASK + b"GET / HTTP/1.1\r\nX-Long: ", piece)
    assert is_closed_by(b"GET / HTTP/1.1\r\nX-Long: " + piece)


def test_a_connection_without_a_request_ends(address: tuple[str, int]) -> None:
    with connected(address) as connection:
        assert all_of(connection) == b""


def test_a_head_has_its_time_and_no_more(address: tuple[str, int]) -> None:
    with connected(address) as connection:
        connection.sendall(ASK[:-2])
        assert all_of(connection) == b""
    with connected(address) as connection:
        connection.sendall(ASK)
        assert connection.recv(4096).startswith(b"HTTP/1.1 200")
        connection.sendall(b"GET / HT")  # a later request of the same connection
        assert all_of(connection) == b""


def test_empty_lines_keep_no_connection_alive(address: tuple[str, int]) -> None:
    with connected(address) as connection:
        connection.sendall(ASK)
        assert connection.recv(4096).startswith(b"HTTP/1.1 200")
        connection.sendall(b"\r\n")
        assert all_of(connection) == b""


def test_an_idle_connection_is_kept_for_longer_than_a_proxy_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[float] = []

    class Noting(BoundedHttp):
        def connection_lost(self, exc: Exception | None) -> None:
            kept.append(self.timeout_keep_alive)
            super().connection_lost(exc)

    with served_by(Noting, monkeypatch) as address, connected(address) as connection:
        connection.sendall(ASK)
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
    assert kept[0] > 60
