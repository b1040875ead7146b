"""What the benchmarks of the whole service share: a server process, a client, and CPU clocks of processes."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def rfc3339(epoch_seconds: float) -> str:
    return datetime.fromtimestamp(epoch_seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Service:
    """``duetime serve`` in a process of its own."""

    def __init__(self, store_url: str, *arguments: str, root: Path = ROOT) -> None:
        self._root = root
        self.port = free_port()
        self._arguments = ("serve", "--port", str(self.port), "--store", store_url, *arguments)

    def start(self, *, timeout_seconds: float = 60.0) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "duetime.cli", *self._arguments],
            env={**os.environ, "PYTHONPATH": str(self._root / "shared")},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        end = time.monotonic() + timeout_seconds
        while time.monotonic() < end:
            if self._process.poll() is not None:
                raise RuntimeError("the server ended at once; run `duetime serve` to see why")
            try:
                if self.client().request("GET", "/health")[0] == 200:
                    return
            except OSError:
                time.sleep(0.05)
        raise TimeoutError("the server does not answer")

    def client(self) -> Client:
        return Client(self.port)

    def _process_ids(self) -> list[int]:
        """Of the server process and of its workers."""
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        return [self._process.pid, *map(int, children)]

    def cpu_seconds(self) -> float:
        return sum(map(cpu_seconds_of, self._process_ids()))

    def memory_mib(self) -> float:
        """Resident memory."""
        pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in self._process_ids())
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def context_switches(self) -> int:
        """Of all threads of the server process."""
        tasks = Path(f"/proc/{self._process.pid}/task").iterdir()
        lines = [line for task in tasks for line in (task / "status").read_text().splitlines()]
        return sum(int(line.split()[1]) for line in lines if "ctxt_switches" in line)

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(timeout=60)


@contextmanager
def running(store_url: str, *arguments: str, root: Path = ROOT) -> Iterator[Service]:
    """``root``: the checkout whose server it is."""
    service = Service(store_url, *arguments, root=root)
    service.start()
    try:
        yield service
    finally:
        service.stop()


def cpu_seconds_of(process_id: int | str) -> float:
    fields = Path(f"/proc/{process_id}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND


_KEPT_SECONDS = 3.0
"""The server closes a connection that is idle for longer than 5 s."""


class Client:
    """One kept-alive connection."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self._used_at = 0.0

    def request(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Status and decoded body. ``body`` is JSON text in bytes, or a value."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"content-type": "application/json"} if data is not None else {}
        if time.monotonic() - self._used_at > _KEPT_SECONDS:
            self._connection.close()  # and opened by the request
        self._connection.request(method, path, data, headers)
        answer = self._connection.getresponse()
        self._used_at = time.monotonic()
        return answer.status, json.loads(answer.read() or b"null")

    def create(self, timers: list[dict[str, Any]], *, namespace: str = "default") -> None:
        """Create timers in batches of 500; anything but success is an error."""
        for start in range(0, len(timers), 500):
            status, answer = self.request(
                "POST", f"/v1/namespaces/{namespace}/timers/batch", {"timers": timers[start : start + 500]}
            )
            bad = [item for item in answer.get("items", []) if item["status"] != 201]
            if status != 200 or bad:
                raise RuntimeError(f"batch create answered {status}: {(bad or [answer])[0]}")
