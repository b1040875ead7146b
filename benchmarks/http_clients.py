"""Which HTTP client costs the least CPU per callback? Decision: docs/decisions/0006-libcurl-sends-the-callbacks.md.

    python -m benchmarks.http_clients [--posts N] [--concurrency N ...] [--rounds N]
        [--host 127.0.0.1|localhost] [--only-ours]

Each client runs in a process of its own and sends the same POSTs over kept-alive HTTP/1.1 to a receiver in another
process. Counted is the CPU time of the whole client process from the first POST to the last answer: everything
that an engine would pay for. Rounds alternate between the clients, and the best of each is reported. Clients that
are not installed are skipped: they are compared, not needed (pip install aiohttp httpx pyreqwest).
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import importlib
import json
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

from benchmarks.figures import note, parser, show
from benchmarks.receiver import Receiver
from benchmarks.service import ROOT

TIMEOUT_SECONDS = 30.0
HEADERS = {
    "Content-Type": "application/json",
    "User-Agent": "Duetime/0.1.0",
    "webhook-id": "0190f0aa-7c11-7b0c-9a51-93b2a30e0f17",
    "webhook-timestamp": "1797780600",
}
BODY = (
    b'{"namespace":"default","timerId":"order-12345","executeAt":"2026-12-20T15:30:00.000Z",'
    b'"firedAt":"2026-12-20T15:30:00.012Z","attempt":1,"payload":{"orderId":12345,"state":"reserved"}}'
)
MODULES = {
    "CurlSender": ("duetime.delivery.curl",),
    "AsyncCurlMulti": ("pycurl", "asyncio"),
    "httptools": ("httptools", "uvloop"),
    "pyreqwest": ("pyreqwest.client", "asyncio"),
    "http.client": ("http.client",),
    "aiohttp": ("aiohttp",),
    "httpx": ("httpx",),
}


# -- the clients: each sends ``posts`` POSTs, ``concurrency`` at a time, and checks every status -------------------


def run_curl_sender(url: str, posts: int, concurrency: int) -> None:
    """As the engine uses it: in its event loop, batches in, batches out."""
    import uvloop

    from duetime.delivery.curl import CurlSender
    from duetime.delivery.egress import LOOPBACK, EgressPolicy
    from duetime.delivery.port import Callback, CallbackResult
    from duetime.delivery.settings import SenderSettings

    headers = tuple(f"{name}: {value}" for name, value in HEADERS.items())
    sender = CurlSender(
        SenderSettings(
            max_connections=concurrency,
            max_connections_per_host=concurrency,
            egress=EgressPolicy(allow_cidrs=LOOPBACK),
        )
    )
    counts = {"sent": 0, "answered": 0}
    finished = asyncio.Event()

    def send(number: int) -> None:
        number = min(number, posts - counts["sent"])
        if number > 0:
            first = counts["sent"]
            counts["sent"] += number
            sender.submit([Callback(first + n, url, headers, BODY, TIMEOUT_SECONDS) for n in range(number)])

    def take(results: list[CallbackResult]) -> None:
        for result in results:
            assert result.status == 200, result
        counts["answered"] += len(results)
        send(len(results))
        if counts["answered"] == posts:
            finished.set()

    async def run() -> None:
        sender.start(take)
        send(concurrency)
        await finished.wait()
        sender.close()

    uvloop.run(run())


async def _each(posts: int, concurrency: int, post: Callable[[], Awaitable[int]]) -> None:
    left = posts

    async def worker() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            status = await post()
            assert status == 200, status

    await asyncio.gather(*(worker() for _ in range(concurrency)))


def run_async_curl_multi(url: str, posts: int, concurrency: int) -> None:
    """pycurl's own asyncio integration, one future per transfer, with reused handles."""
    import pycurl
    import uvloop

    headers = [f"{name}: {value}" for name, value in HEADERS.items()]

    def new_handle() -> tuple[Any, list[bytes]]:
        body: list[bytes] = []
        curl = pycurl.Curl()
        curl.setopt(pycurl.POST, 1)
        curl.setopt(pycurl.NOSIGNAL, 1)
        curl.setopt(pycurl.WRITEFUNCTION, body.append)
        curl.setopt(pycurl.TIMEOUT_MS, int(TIMEOUT_SECONDS * 1000))
        return curl, body

    async def run() -> None:
        idle = [new_handle() for _ in range(concurrency)]
        async with pycurl.AsyncCurlMulti() as multi:
            multi.setopt(pycurl.M_MAXCONNECTS, concurrency)

            async def post() -> int:
                curl, body = idle.pop()
                curl.setopt(pycurl.URL, url)
                curl.setopt(pycurl.HTTPHEADER, headers)
                curl.setopt(pycurl.POSTFIELDS, BODY)
                await multi.perform(curl)
                status: int = curl.getinfo(pycurl.RESPONSE_CODE)
                body.clear()
                idle.append((curl, body))
                return status

            await _each(posts, concurrency, post)

    uvloop.run(run())


def run_httptools(url: str, posts: int, concurrency: int) -> None:
    """By hand: an asyncio protocol around a parser. No TLS checks, no caps, no DNS: a lower bound, no client."""
    import httptools
    import uvloop

    parts = urlsplit(url)
    head = "".join(f"{name}: {value}\r\n" for name, value in HEADERS.items())
    request = (
        f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\n{head}Content-Length: {len(BODY)}\r\n\r\n".encode()
        + BODY
    )

    class Connection(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport: Any = transport
            self.parser = httptools.HttpResponseParser(self)

        def post(self) -> asyncio.Future[int]:
            self.answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            self.transport.write(request)
            return self.answer

        def data_received(self, data: bytes) -> None:
            self.parser.feed_data(data)

        def on_message_complete(self) -> None:
            status = self.parser.get_status_code()
            self.parser = httptools.HttpResponseParser(self)
            self.answer.set_result(status)

    async def run() -> None:
        loop = asyncio.get_running_loop()
        idle = [
            (await loop.create_connection(Connection, parts.hostname or "", parts.port or 80))[1]
            for _ in range(concurrency)
        ]

        async def post() -> int:
            connection = idle.pop()
            async with asyncio.timeout(TIMEOUT_SECONDS):
                status = await connection.post()
            idle.append(connection)
            return status

        await _each(posts, concurrency, post)

    uvloop.run(run())


def run_pyreqwest(url: str, posts: int, concurrency: int) -> None:
    from datetime import timedelta

    from pyreqwest.client import ClientBuilder

    async def run() -> None:
        builder = ClientBuilder().no_proxy().http1_only().timeout(timedelta(seconds=TIMEOUT_SECONDS))
        async with builder.build() as client:

            async def post() -> int:
                answer = await client.post(url).headers(HEADERS).body_bytes(BODY).build().send()
                await answer.bytes()
                return int(answer.status)

            await _each(posts, concurrency, post)

    asyncio.run(run())


def run_http_client(url: str, posts: int, concurrency: int) -> None:
    """Blocking connections in threads; a thread per connection, at most 64."""
    parts = urlsplit(url)
    threads = min(concurrency, 64)

    def worker(number: int) -> None:
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=TIMEOUT_SECONDS)
        for _ in range(number):
            connection.request("POST", parts.path, BODY, HEADERS)
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 200
        connection.close()

    shares = [posts // threads + (n < posts % threads) for n in range(threads)]
    workers = [threading.Thread(target=worker, args=(share,)) for share in shares]
    for thread in workers:
        thread.start()
    for thread in workers:
        thread.join()


def run_aiohttp(url: str, posts: int, concurrency: int) -> None:
    import aiohttp
    import uvloop

    async def run() -> None:
        connector = aiohttp.TCPConnector(limit=concurrency)
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:

            async def post() -> int:
                async with session.post(url, data=BODY, headers=HEADERS, allow_redirects=False) as answer:
                    await answer.read()
                    return int(answer.status)

            await _each(posts, concurrency, post)

    uvloop.run(run())


def run_httpx(url: str, posts: int, concurrency: int) -> None:
    import httpx
    import uvloop

    async def run() -> None:
        limits = httpx.Limits(max_connections=concurrency, max_keepalive_connections=concurrency)
        async with httpx.AsyncClient(limits=limits, timeout=TIMEOUT_SECONDS, trust_env=False) as client:

            async def post() -> int:
                return (await client.post(url, content=BODY, headers=HEADERS)).status_code

            await _each(posts, concurrency, post)

    uvloop.run(run())


RUNS: dict[str, Callable[[str, int, int], None]] = {
    "CurlSender": run_curl_sender,
    "AsyncCurlMulti": run_async_curl_multi,
    "httptools": run_httptools,
    "pyreqwest": run_pyreqwest,
    "http.client": run_http_client,
    "aiohttp": run_aiohttp,
    "httpx": run_httpx,
}
SLOW = {"httpx": 10, "aiohttp": 2, "http.client": 2}
"""These send only a part of the POSTs, so that the comparison ends today."""


# -- measuring -----------------------------------------------------------------------------------------------------


def measure_here(client: str, url: str, posts: int, concurrency: int) -> dict[str, float]:
    """Run one client in this process."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 10_000) if hard > 0 else 10_000, hard))
    for module in MODULES[client]:
        importlib.import_module(module)
    cpu, started = time.process_time(), time.perf_counter()
    RUNS[client](url, posts, concurrency)
    return {
        "cpu_us_each": (time.process_time() - cpu) / posts * 1e6,
        "posts_per_s": posts / (time.perf_counter() - started),
    }


def measure(client: str, url: str, posts: int, concurrency: int) -> dict[str, float] | str:
    """Return the measurements of fresh processes; why there are none, as text."""
    probe = (
        f"import time; t = time.perf_counter(); import {', '.join(MODULES[client])}; print(time.perf_counter() - t)"
    )
    imported = _run("-c", probe)
    if imported.returncode:
        return imported.stderr.strip().splitlines()[-1]
    numbers = ("--posts", str(posts), "--concurrency", str(concurrency))
    run = _run(__file__, "--client", client, "--url", url, *numbers)
    if not run.stdout:
        return run.stderr.strip().splitlines()[-1]
    result: dict[str, float] = json.loads(run.stdout)
    return result | {"import_ms": float(imported.stdout) * 1000, "crashed_at_exit": float(run.returncode != 0)}


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'shared'}"}
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=600, check=False, env=environment
    )


def compare(posts: int, concurrency: int, rounds: int, host: str, clients: list[str]) -> None:
    best: dict[str, dict[str, float]] = {}
    skipped: dict[str, str] = {}
    with Receiver() as receiver:
        for _ in range(rounds):
            for client in clients:
                if client in skipped:
                    continue
                result = measure(
                    client, receiver.url.replace("127.0.0.1", host), posts // SLOW.get(client, 1), concurrency
                )
                if isinstance(result, str):
                    skipped[client] = result
                elif client not in best:
                    best[client] = result
                else:
                    known = best[client]
                    pick = {"import_ms": min, "cpu_us_each": min, "posts_per_s": max, "crashed_at_exit": max}
                    best[client] = {name: choose(known[name], result[name]) for name, choose in pick.items()}
    for client, result in sorted(best.items(), key=lambda item: item[1]["cpu_us_each"]):
        ratio = result["cpu_us_each"] / best["CurlSender"]["cpu_us_each"]
        show(f"{client}, {concurrency} at a time", ratio=ratio, **result)
    for client, reason in skipped.items():
        note(f"{client}: skipped: {reason}")


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--posts", type=int, default=20_000)
    options.add_argument("--concurrency", type=int, nargs="+", default=[100, 500])
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--host", choices=["127.0.0.1", "localhost"], default="127.0.0.1", help="call it by this")
    options.add_argument("--only-ours", action="store_true", help="measure CurlSender alone")
    options.add_argument("--client", choices=RUNS, help=argparse.SUPPRESS)
    options.add_argument("--url", help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.client:
        print(json.dumps(measure_here(given.client, given.url, given.posts, given.concurrency[0])))
        return
    clients = ["CurlSender"] if given.only_ours else list(RUNS)
    for number in given.concurrency:
        compare(given.posts, number, given.rounds, given.host, clients)


if __name__ == "__main__":
    main()
