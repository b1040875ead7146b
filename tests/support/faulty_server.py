"""A server that goes wrong as a test says: answers are lost, cut short, late, or 503s. One request a connection."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.support.no_tls import NO_TLS

WAIT_SECONDS = 20.0


@dataclass(frozen=True)
class Asked:
    """A request that arrived."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


Act = Callable[["FaultyServer", Asked], "bytes | None"]
"""What to do with a request: the bytes to send before the connection is closed, or None to wait for the client to."""


def answer(status: int, body: Any = None, *, content_type: str = "application/json", **headers: str) -> Act:
    """A whole answer. ``body`` is bytes, or JSON. Names of ``headers`` have ``_`` for ``-``."""
    content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    given = {"content-type": content_type, "content-length": str(len(content)), "connection": "close"}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    head = f"HTTP/1.1 {status} x\r\n" + "".join(f"{name}: {value}\r\n" for name, value in given.items())
    return lambda server, asked: head.encode() + b"\r\n" + content


def stream(content: bytes, *, is_whole: bool = False) -> Act:
    """Server-sent events whose connection breaks off behind ``content``, unless it ``is_whole``."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
    chunk = f"{len(content):x}\r\n".encode() + content + b"\r\n" if content else b""
    return lambda server, asked: head + chunk + (b"0\r\n\r\n" if is_whole else b"")


def hang_up(server: FaultyServer, asked: Asked) -> bytes:
    """Nothing is done, and nothing is said."""
    return b""


def silence(server: FaultyServer, asked: Asked) -> None:
    """Nothing is said, and the connection stays open."""


def passed(server: FaultyServer, asked: Asked) -> bytes:
    """What the real server answers."""
    return server.forward(asked)


def lost(server: FaultyServer, asked: Asked) -> bytes:
    """The real server does it, and its answer is lost."""
    server.forward(asked)
    return b""


def cut(server: FaultyServer, asked: Asked) -> bytes:
    """The real server does it, and half of its answer arrives."""
    whole = server.forward(asked)
    return whole[: len(whole) - 20]


@dataclass
class FaultyServer:
    """``acts`` are taken from the front, one for each request; after that, requests are passed on."""

    url: str
    upstream_url: str
    acts: list[Act]
    upstream: httpx.Client
    asked: list[Asked] = field(default_factory=list)

    def forward(self, asked: Asked) -> bytes:
        headers = {name: value for name, value in asked.headers.items() if name not in ("host", "connection")}
        url = self.upstream_url + asked.target
        found = self.upstream.request(asked.method, url, content=asked.body, headers=headers)
        kept = {name: value for name, value in found.headers.items() if name != "transfer-encoding"}
        kept |= {"content-length": str(len(found.content)), "connection": "close"}
        head = f"HTTP/1.1 {found.status_code} x\r\n" + "".join(f"{name}: {value}\r\n" for name, value in kept.items())
        return head.encode() + b"\r\n" + found.content

    def serve(self, connection: socket.socket) -> None:
        connection.settimeout(WAIT_SECONDS)
        asked = _read(connection)
        if asked is None:
            return
        self.asked.append(asked)
        act = self.acts.pop(0) if self.acts else passed
        content = act(self, asked)
        with suppress(OSError):
            if content is None:
                connection.recv(1)  # until the client has given up
            else:
                connection.sendall(content)


@contextmanager
def faulty_server(*acts: Act, upstream_url: str = "") -> Iterator[FaultyServer]:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        httpx.Client(timeout=WAIT_SECONDS, verify=NO_TLS) as upstream,
    ):
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        server = FaultyServer(url, upstream_url, list(acts), upstream)

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection, suppress(OSError):
                    server.serve(connection)

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield server
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(WAIT_SECONDS)


def _read(connection: socket.socket) -> Asked | None:
    """A whole request; None when there is none."""
    content = b""
    while b"\r\n\r\n" not in content:
        more = connection.recv(65536)
        if not more:
            return None
        content += more
    head, _, body = content.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    while len(body) < int(headers.get("content-length", "0")):
        body += connection.recv(65536)
    method, target, _ = first.split(" ")
    return Asked(method, target, headers, body)
