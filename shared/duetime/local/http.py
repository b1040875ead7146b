"""Accepting HTTP: the socket, and uvicorn on it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from ipaddress import IPv6Address, ip_address

import uvicorn

from duetime.domain.errors import DuetimeError
from duetime.engine.waiting import WakeupEvent
from duetime.local.asgi import Asgi
from duetime.local.bounded_http import BoundedHttp
from duetime.local.services import ThreadService

MAX_CONNECTIONS = 1000
KEEP_ALIVE_SECONDS = 75
"""Of a connection without a request. Clients and proxies (nginx: 60 s) close theirs first: a request that meets the
server's own closing is reset."""
REQUEST_GRACE_SECONDS = 10
"""How long a stop waits for requests in progress."""


class CannotListen(DuetimeError):
    """The address is taken, not ours, or not an address."""

    code = "cannot_listen"


def bind(host: str, port: int) -> socket.socket:
    """Return a bound socket; it does not accept yet. Raises ``CannotListen``."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
        except OSError:
            listener.close()
            raise
    except OSError as error:
        raise CannotListen(f"cannot listen on {host}:{port}: {error.strerror}") from error
    return listener


def is_loopback(host: str) -> bool:
    """Tell whether an address, as a socket names it, is a loopback address."""
    address = ip_address(host.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback


def url_of(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def http_service(
    app: Asgi,
    listener: socket.socket,
    on_started: Callable[[], None],
    *,
    on_stopping: Callable[[], None] = lambda: None,
) -> ThreadService:
    """Run uvicorn with uvloop and httptools, in a thread of its own, where it leaves signals alone.

    A stop waits for requests in progress. ``on_stopping`` is called first, from another thread, to end those that
    would not end by themselves.
    """
    config = uvicorn.Config(
        app,
        loop="uvloop",
        http=BoundedHttp,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=REQUEST_GRACE_SECONDS,
    )
    server = _Server(config, on_started)

    def request_stop() -> None:
        server.request_stop()
        on_stopping()

    return ThreadService("http", lambda: server.run([listener]), request_stop)


class _Server(uvicorn.Server):
    """Tells when it accepts. It wakes once a second, for the ``Date`` header; uvicorn does ten times."""

    def __init__(self, config: uvicorn.Config, on_started: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_started = on_started
        self._alarm = WakeupEvent()
        self._loop: asyncio.AbstractEventLoop | None = None

    def request_stop(self) -> None:
        """Ask for the stop, from any thread."""
        self.should_exit = True
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has closed
                self._loop.call_soon_threadsafe(self._alarm.set)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        self._on_started()

    async def main_loop(self) -> None:
        while not await self.on_tick(0):
            await self._alarm.wait(1.0)
