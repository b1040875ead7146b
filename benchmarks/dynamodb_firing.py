"""What the poller itself costs on DynamoDB: timers due at one instant, with a stand-in for the service.

    python -m benchmarks.dynamodb_firing [--timers 20000] [--shards 4] [--latency-ms 5]

``duetime worker`` has the settings of the poller on Lambda and one core to itself, as a Lambda with one vCPU. The
other core has the receiver and the stand-in: a process that serves the timers from its memory after ``--latency-ms``,
and hands all else (leases, namespaces) on to an emulator. So no emulator's time is in the figures.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import msgspec

from benchmarks.figures import parser, show
from benchmarks.receiver import Receiver
from benchmarks.service import ROOT, cpu_seconds_of
from duetime.domain.timers import TimerContent, content_digest, new_timer
from duetime.runtime.ids import new_id
from duetime.stores.backends.dynamodb.client import make_client
from duetime.stores.core.timer_codec import encode
from duetime.stores.entities import TIMER
from tests.support.dynamodb import dynamodb_store, item_of
from tests.support.ministack import running_ministack

TABLE = "timers"
LEAD_SECONDS = 15.0
"""From the worker's start to the instant: it must have all shards by then."""


class StandIn:
    """The timers of a table. One that was written is no longer due."""

    def __init__(self, upstream_url: str, items: list[dict[str, Any]]) -> None:
        self._upstream_url = upstream_url
        self._due: defaultdict[str, list[tuple[str, str, msgspec.Raw]]] = defaultdict(list)
        for item in items:
            at, key = item["timer_execute_at"]["S"], item["sortKey"]["S"]
            self._due[item["shard_id"]["N"]].append((at, key, msgspec.Raw(msgspec.json.encode(item))))
        for shard in self._due.values():
            shard.sort(key=lambda each: each[:2])
        self._done: set[str] = set()
        self.requests: Counter[str] = Counter()
        self.connections = self.in_flight = self.most_in_flight = 0

    async def answer(self, target: str, raw: bytes, headers: dict[str, str]) -> bytes:
        operation = target.rpartition(".")[2]
        self.requests[operation] += 1
        if operation == "Query" or operation == "BatchExecuteStatement":
            body = msgspec.json.decode(raw)
            if body.get("IndexName") == "timer_execute_at-index":
                return self._query(body)
            if operation == "BatchExecuteStatement" and b'"TIMER#' in raw:
                return self._write(body["Statements"])
        return await asyncio.to_thread(self._forward, raw, headers)

    def _query(self, body: dict[str, Any]) -> bytes:
        values = {name: next(iter(value.values())) for name, value in body["ExpressionAttributeValues"].items()}
        due = self._due[values[":hash"]]
        start = body.get("ExclusiveStartKey")
        after = (start["timer_execute_at"]["S"], start["sortKey"]["S"]) if start else (values[":low"], "")
        found: list[tuple[str, str, msgspec.Raw]] = []
        for place in range(bisect_right(due, after, key=lambda each: each[:2]), len(due)):
            if due[place][0] > values[":high"] or len(found) == body["Limit"]:
                break
            if due[place][1] not in self._done:
                found.append(due[place])
        answer: dict[str, Any] = {
            "Items": [each[2] for each in found],
            "Count": len(found),
            "ScannedCount": len(found),
        }
        if len(found) == body["Limit"]:
            at, key, _ = found[-1]
            answer["LastEvaluatedKey"] = {
                "shard_id": {"N": values[":hash"]},
                "sortKey": {"S": key},
                "timer_execute_at": {"S": at},
            }
        return msgspec.json.encode(answer)

    def _write(self, statements: list[dict[str, Any]]) -> bytes:
        for each in statements:
            self._done.update(
                text for value in each["Parameters"] if (text := value.get("S", "")).startswith("TIMER#")
            )
        return msgspec.json.encode({"Responses": [{"TableName": TABLE}] * len(statements)})

    def _forward(self, raw: bytes, headers: dict[str, str]) -> bytes:
        request = urllib.request.Request(self._upstream_url, raw, headers, method="POST")
        with urllib.request.urlopen(request, timeout=10) as response:
            answer: bytes = response.read()
            return answer

    def stats(self) -> bytes:
        names = ("connections", "most_in_flight", "requests")
        return msgspec.json.encode({name: getattr(self, name) for name in names})


class Connection(asyncio.Protocol):
    """One HTTP/1.1 connection. GET tells what was asked for so far, and begins again."""

    def __init__(self, stand_in: StandIn, latency_seconds: float) -> None:
        import httptools

        self._stand_in = stand_in
        self._latency_seconds = latency_seconds
        self._parser = httptools.HttpRequestParser(self)
        self._waiting: set[asyncio.Task[None]] = set()
        self._begin()

    def _begin(self) -> None:
        self._headers: dict[str, str] = {}
        self._body = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._stand_in.connections += 1

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode().lower()] = value.decode()

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        if self._parser.get_method() == b"GET":
            self._respond(self._stand_in.stats())
            self._stand_in.requests.clear()
        else:
            task = asyncio.get_running_loop().create_task(self._answer(self._headers, self._body))
            self._waiting.add(task)
            task.add_done_callback(self._waiting.discard)
        self._begin()

    async def _answer(self, headers: dict[str, str], body: bytes) -> None:
        stand_in = self._stand_in
        stand_in.in_flight += 1
        stand_in.most_in_flight = max(stand_in.most_in_flight, stand_in.in_flight)
        try:
            await asyncio.sleep(self._latency_seconds)
            self._respond(await stand_in.answer(headers["x-amz-target"], body, headers))
        finally:
            stand_in.in_flight -= 1

    def _respond(self, body: bytes) -> None:
        self._transport.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/x-amz-json-1.0\r\ncontent-length: %d\r\n\r\n" % len(body)
            + body
        )


async def stand_in(upstream_url: str, items_file: str, latency_seconds: float) -> None:
    """Until its standard input ends."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(sys.stdin, ended.set)
    service = StandIn(upstream_url, msgspec.json.decode(Path(items_file).read_bytes()))
    server = await loop.create_server(lambda: Connection(service, latency_seconds), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await ended.wait()
    server.close()


@contextmanager
def child(core: int, *command: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """Run a process of this Python on one core."""
    process = subprocess.Popen(
        ["taskset", "--cpu-list", str(core), sys.executable, *command],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'shared'}:{ROOT}", **variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def timers_of(upstream_url: str, receiver_url: str, number: int, shards: int, due: datetime) -> list[dict[str, Any]]:
    """Return the items of ``number`` usual timers, for which there is nothing but a namespace in the emulator."""
    client = make_client(endpoint_url=upstream_url)
    store = dynamodb_store(client, TABLE)
    store.initialise()
    now = datetime.now(UTC).replace(microsecond=0)
    namespace, _ = store.catalogue.create_namespace("default", num_shards=shards, dedicated=False, now=now)
    items = []
    for index in range(number):
        content = TimerContent(
            execute_at=due,
            callback_url=f"{receiver_url}hook",
            payload_json=f'{{"orderId": {index}, "kind": "reminder"}}',
        )
        digest = content_digest(content)
        timer = new_timer(namespace, new_id(), content, digest=digest, firing_id=new_id(), now=now)
        items.append(item_of(TIMER, encode(timer)))
    return items


def asked(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(url, timeout=10) as response:
        answer: dict[str, Any] = json.loads(response.read())
        return answer


def measure(*, number: int, shards: int, latency_seconds: float) -> None:
    worker_core, other_core = sorted(os.sched_getaffinity(0))[:2]
    os.sched_setaffinity(0, {other_core})  # this process, and what it starts without a core of its own
    with running_ministack() as upstream_url, Receiver() as receiver, TemporaryDirectory() as folder:
        due = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=LEAD_SECONDS + number / 5000)
        file = Path(folder) / "items.json"
        file.write_bytes(msgspec.json.encode(timers_of(upstream_url, receiver.url, number, shards, due)))
        stub = ("-m", "benchmarks.dynamodb_firing", "--stand-in", upstream_url, str(file), str(latency_seconds))
        with child(other_core, *stub) as serving:
            assert serving.stdout is not None
            url = f"http://127.0.0.1:{int(serving.stdout.readline())}"
            settings = {
                "DUETIME_STORE": f"dynamodb://{TABLE}?endpoint_url={url}",
                "DUETIME_MAX_IN_FLIGHT": "400",  # as on Lambda
                "DUETIME_EVENT_PUBLISHERS": "none",
                "DUETIME_LOG_LEVEL": "warning",
            }
            with child(worker_core, "-m", "duetime.cli", "worker", **settings) as worker:
                time.sleep(max(0.0, due.timestamp() - time.time() - 0.2))
                asked(url)
                cpu = cpu_seconds_of(worker.pid)
                end = time.monotonic() + 120
                while (stats := receiver.stats())["unique"] < number and time.monotonic() < end:
                    time.sleep(0.2)
                time.sleep(0.5)  # the last outcomes are being recorded
                cpu = cpu_seconds_of(worker.pid) - cpu
                service = asked(url)
    requests = service["requests"]
    show(
        f"{number} timers on {shards} shards",
        arrived=stats["unique"],
        sent_twice=stats["requests"] - stats["unique"],
        per_s=stats["unique"] / stats["latenessMs"]["max"] * 1000,
        worker_cpu_us_each=cpu / number * 1e6,
        requests_each=sum(requests.values()) / number,
        connections=service["connections"],
        most_requests_at_once=service["most_in_flight"],
        **requests,
    )


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--timers", type=int, default=20_000)
    options.add_argument("--shards", type=int, default=4)
    options.add_argument("--latency-ms", type=float, default=5.0)
    options.add_argument("--stand-in", nargs=3, help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.stand_in:
        upstream_url, items_file, latency = given.stand_in
        asyncio.run(stand_in(upstream_url, items_file, float(latency)))
    else:
        measure(number=given.timers, shards=given.shards, latency_seconds=given.latency_ms / 1000)


if __name__ == "__main__":
    main()
