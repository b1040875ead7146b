"""A real server that is gone for longer than a lease lasts: the poller reads and fires as soon as it is back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa

from duetime.runtime.clock import SystemClock
from duetime.runtime.settings import WorkerSettings
from duetime.runtime.wiring import make_poller, store_clock
from duetime.stores.core.store import Store
from duetime.stores.open import open_store
from duetime.stores.port.timers import PutMode
from duetime.testing.contract.builders import make_timer
from tests.support.databases import database_url, open_server_store
from tests.support.ports import reserved_port

OUTAGE_SECONDS = 12.0
"""Longer than leases are trusted, and than it takes any back-off to reach its end."""


class Line:
    """Passes connections on to a server, until it is cut: then there is nothing to connect to."""

    def __init__(self, port: int, target: tuple[str, int]) -> None:
        self.port = port
        self._target = target
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.connected_at: list[float] = []

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._pass_on, "127.0.0.1", self.port)

    async def cut(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        if self._server is None or not self._server.is_serving():
            writer.transport.abort()  # it was accepted just before
            return
        self.connected_at.append(time.monotonic())
        others: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        try:
            others = await asyncio.open_connection(*self._target)
            await asyncio.gather(_copy(reader, others[1]), _copy(others[0], writer))
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            for each in (writer, *(() if others is None else (others[1],))):
                each.transport.abort()
            self._tasks.discard(task)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()
    raise ConnectionError


@contextmanager
def opened(url: str) -> Iterator[Store]:
    store = open_store(url)
    try:
        yield store
    finally:
        store.close()


def test_after_an_outage_timers_fire_at_once(server: str) -> None:
    url = sa.make_url(database_url(server))
    operator = open_server_store(server)
    clock = SystemClock()
    namespace, _ = operator.catalogue.create_namespace("default", num_shards=4, dedicated=False, now=clock.now())
    fired_at: list[float] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        fired_at.append(time.monotonic())
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    async def main(line: Line) -> tuple[float, dict[str, int]]:
        await line.open()
        receiver = await asyncio.start_server(answer, "127.0.0.1", 0)
        callback = f"http://127.0.0.1:{receiver.sockets[0].getsockname()[1]}/"
        through = url.set(host="127.0.0.1", port=line.port).render_as_string(hide_password=False)
        with opened(through) as store:
            settings = WorkerSettings(store=through)
            poller = make_poller(store, settings, store_clock(store), events=None, secret_box=None)
            stop = asyncio.Event()
            running = asyncio.create_task(poller.run(stop))
            async with asyncio.timeout(60):
                while poller.stats()["shards_owned"] < 4:
                    assert not running.done(), running.exception()
                    await asyncio.sleep(0.05)
            await line.cut()
            now = clock.now()
            timers = [make_timer(namespace, f"t{at}", execute_at=now, callback_url=callback) for at in range(8)]
            operator.timers.put(timers, mode=PutMode.CREATE, now=now)
            await asyncio.sleep(OUTAGE_SECONDS)
            assert fired_at == []
            await line.open()
            back = time.monotonic()
            while len(fired_at) < 8 and time.monotonic() < back + 30:
                await asyncio.sleep(0.01)
            stop.set()
            await running
            poller.close()
            receiver.close()
            await line.cut()
            return back, poller.stats()

    with reserved_port() as port:
        line = Line(port, (url.host or "", url.port or 0))
        back, stats = asyncio.run(main(line))
    operator.close()
    assert min(at for at in line.connected_at if at >= back) - back < 1, "it asks at least so often"
    assert len(fired_at) == 8
    assert stats["fired"] == 8
    assert max(fired_at) - back < 3, "a busy machine needs a moment"
