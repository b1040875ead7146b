"""A callback receiver that is faster than what it measures.

Run as a process of its own, so that the sender's CPU time can be told from the receiver's:

    python benchmarks/receiver.py [--port N] [--record FILE] [--delay-ms N]

It prints ``{"port": N}`` when it listens and runs until SIGTERM or until its standard input closes. Every POST is
answered with an empty 200; ``GET /stats`` tells what arrived so far and ``GET /reset`` starts the counts again.
``Receiver`` starts and asks such a process from a benchmark.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import time
import urllib.request
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO, cast

MAX_BODY_BYTES = 1024 * 1024
MAX_CONNECTIONS = 4096
MAX_IDS = 5_000_000
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
_REFUSAL = b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


@lru_cache(maxsize=100_000)
def _epoch_seconds(instant: bytes) -> float:
    return datetime.fromisoformat(instant.decode()).timestamp()


class Totals:
    """What arrived: counts, the ids seen, and how late each timer was (its first arrival after ``executeAt``)."""

    def __init__(self, record: TextIO | None) -> None:
        self._record = record
        self.connections = 0
        self.reset()

    def reset(self) -> None:
        self.requests = 0
        self.peak_connections = self.connections
        self.opened = 0
        self.ids: set[bytes] = set()
        self.lateness_seconds: list[float] = []
        self.first_at = self.last_at = 0.0
        self._cpu_before = time.process_time()

    def add(self, path: bytes, webhook_id: bytes, body: bytes) -> None:
        now = time.time()
        self.requests += 1
        self.first_at = self.first_at or now
        self.last_at = now
        if self._record is not None:
            self._record.write(f"{now:.6f} {path.decode()} {webhook_id.decode()}\n")
        if webhook_id in self.ids or len(self.ids) >= MAX_IDS:
            return
        self.ids.add(webhook_id)
        at = body.find(b'"executeAt":"')
        if at >= 0:
            self.lateness_seconds.append(now - _epoch_seconds(body[at + 13 : at + 37]))

    def stats(self) -> dict[str, Any]:
        late = sorted(self.lateness_seconds)
        seconds = self.last_at - self.first_at
        return {
            "requests": self.requests,
            "unique": len(self.ids),
            "seconds": seconds,
            "perSecond": self.requests / seconds if seconds > 0 else None,
            "opened": self.opened,
            "peakConnections": self.peak_connections,
            "cpuSeconds": time.process_time() - self._cpu_before,
            "latenessMs": {
                name: round(late[min(int(len(late) * part), len(late) - 1)] * 1000, 3)
                for name, part in (("min", 0.0), ("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0))
                if late
            },
        }


class Connection(asyncio.Protocol):
    """One HTTP/1.1 connection: parsed by httptools, answered in one write per read."""

    def __init__(self, totals: Totals, delay_seconds: float) -> None:
        import httptools

        self._tally = totals
        self._delay_seconds = delay_seconds
        self._parser = httptools.HttpRequestParser(self)
        self._answers: list[bytes] = []
        self._begin()

    def _begin(self) -> None:
        self._id = b""
        self._path = b""
        self._body = b""

    # -- asyncio ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's does not derive from it
        self._tally.connections += 1
        self._tally.opened += 1
        self._tally.peak_connections = max(self._tally.peak_connections, self._tally.connections)
        if self._tally.connections > MAX_CONNECTIONS:
            transport.close()

    def connection_lost(self, _error: Exception | None) -> None:
        self._tally.connections -= 1

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except Exception:  # whatever the parser objects to, the connection is of no more use
            self._transport.close()
            return
        if not self._answers:
            return
        answer = b"".join(self._answers)
        self._answers.clear()
        if self._delay_seconds:
            asyncio.get_running_loop().call_later(self._delay_seconds, self._answer, answer)
        else:
            self._transport.write(answer)

    def _answer(self, answer: bytes) -> None:
        if not self._transport.is_closing():  # or the sender was killed meanwhile
            self._transport.write(answer)

    # -- httptools -------------------------------------------------------------------------------------------

    def on_url(self, url: bytes) -> None:
        self._path = url

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(name) == 10 and name.lower() == b"webhook-id":
            self._id = value

    def on_body(self, body: bytes) -> None:
        self._body += body
        if len(self._body) > MAX_BODY_BYTES:
            self._transport.write(_REFUSAL)
            self._transport.close()

    def on_message_complete(self) -> None:
        if self._parser.get_method() == b"POST":
            self._tally.add(self._path, self._id, self._body)
            self._answers.append(_ANSWER)
        else:
            if self._path == b"/reset":
                self._tally.reset()
            text = json.dumps(self._tally.stats()).encode()
            head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(text)
            self._answers.append(head + text)
        self._begin()


async def serve(port: int, record: TextIO | None, delay_seconds: float) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    if not sys.stdin.isatty():
        with contextlib.suppress(PermissionError):  # /dev/null cannot be watched, and never closes
            loop.add_reader(sys.stdin, stop.set)
    totals = Totals(record)
    server = await loop.create_server(lambda: Connection(totals, delay_seconds), "127.0.0.1", port, backlog=4096)
    print(json.dumps({"port": server.sockets[0].getsockname()[1]}), flush=True)
    await stop.wait()
    server.close()


class Receiver:
    """A receiver process: ``with Receiver() as receiver: ... receiver.url ... receiver.stats()``."""

    def __init__(self, *arguments: str) -> None:
        self._arguments = arguments

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, __file__, *self._arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.port: int = json.loads(self._process.stdout.readline())["port"]
        self.url = f"http://127.0.0.1:{self.port}/"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.communicate(timeout=10)

    def _ask(self, path: str) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self.url}{path}", timeout=10) as answer:
            stats: dict[str, Any] = json.load(answer)
            return stats

    def stats(self) -> dict[str, Any]:
        return self._ask("stats")

    def reset(self) -> None:
        self._ask("reset")


def main() -> None:
    parser = argparse.ArgumentParser(description="A fast callback receiver for benchmarks.")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--record", type=Path, help="write a line per POST: seconds since 1970, path, webhook-id")
    parser.add_argument("--delay-ms", type=float, default=0.0, help="answer this much later")
    given = parser.parse_args()
    import uvloop

    with contextlib.ExitStack() as stack:
        record = stack.enter_context(given.record.open("w")) if given.record else None
        uvloop.run(serve(given.port, record, given.delay_ms / 1000))


if __name__ == "__main__":
    main()
