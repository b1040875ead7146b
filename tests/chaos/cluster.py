"""A server and its workers as real processes on one store, and a client that goes on creating timers meanwhile."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from tests.chaos.ledger import Expected
from tests.support.callbacks import CallbackReceiver
from tests.support.no_tls import NO_TLS
from tests.support.ports import reserved_port
from tests.support.processes import DuetimeProcess

LEASE_SECONDS = 5.0
_OPTIONS = ("--lease-seconds", str(LEASE_SECONDS))
_FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")


def has_faketime() -> bool:
    return _FAKETIME.exists()


def faked_clock(offset: str = "+0") -> dict[str, str]:
    """The environment of a process whose wall clock is off by ``offset`` seconds, and whose monotonic one is not."""
    return {"LD_PRELOAD": str(_FAKETIME), "FAKETIME": offset, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


def jumping_clock(file: Path) -> dict[str, str]:
    """The same with the offset that ``file`` holds at each moment."""
    return {
        "LD_PRELOAD": str(_FAKETIME),
        "FAKETIME_TIMESTAMP_FILE": str(file),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


@dataclass
class Cluster:
    """``url`` names the store; files are in ``folder``. Killed at the end."""

    url: str
    folder: Path
    receiver: CallbackReceiver
    workers: list[DuetimeProcess] = field(default_factory=list)
    server: DuetimeProcess | None = None
    _stack: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Self:
        with reserved_port() as self.port:
            self.start_server()
        self.client = self._stack.enter_context(
            httpx.Client(base_url=f"http://127.0.0.1:{self.port}/v1/namespaces/default", timeout=30, verify=NO_TLS)
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for process in [*self.workers, self.server]:
            if process is not None:
                with suppress(ProcessLookupError):
                    process.process.send_signal(signal.SIGCONT)
                process.kill()
        self._stack.close()

    def start_server(self) -> None:
        self.server = self._start("serve", "--port", str(self.port), "--workers", "1")
        self.server.wait_for("server.started")

    def start_worker(self, environment: dict[str, str] | None = None) -> DuetimeProcess:
        worker = self._start("worker", **(environment or {}))
        self.workers.append(worker)
        return worker

    def _start(self, *words: str, **environment: str) -> DuetimeProcess:
        return DuetimeProcess(*words, *_OPTIONS, cwd=self.folder, DUETIME_STORE=self.url, **environment)

    def body(self, due_at: datetime, **more: Any) -> dict[str, Any]:
        """A timer's, as it is put."""
        return {"executeAt": due_at.isoformat(timespec="milliseconds"), "callbackUrl": self.receiver.url, **more}


class Load(threading.Thread):
    """Creates timers in small batches, due within the next seconds, until it is stopped.

    ``accepted`` has those whose creation was answered. What became of the others nobody knows.
    """

    def __init__(self, cluster: Cluster, *, per_second: int, seed: int) -> None:
        super().__init__(name="load")
        self.accepted: dict[str, Expected] = {}
        self.refused = 0
        self._cluster = cluster
        self._per_second = per_second
        self._chance = random.Random(seed)
        self._stopped = threading.Event()

    def run(self) -> None:
        number = 0
        began = time.monotonic()
        while not self._stopped.wait(max(0.0, began + number * 0.25 - time.monotonic())):
            self._create(number)
            number += 1

    def _create(self, number: int) -> None:
        now = datetime.now(UTC)
        dues = {
            f"t{number}-{index}": now + timedelta(milliseconds=self._chance.randrange(500, 4000))
            for index in range(self._per_second // 4)
        }
        timers = [{"id": timer_id, **self._cluster.body(due_at)} for timer_id, due_at in dues.items()]
        try:
            answer = self._cluster.client.post("/timers/batch", json={"timers": timers}, timeout=15)
            items = answer.raise_for_status().json()["items"]
        except httpx.HTTPError:
            self.refused += len(timers)
            return
        for item in items:
            if item["status"] in (200, 201):
                self.accepted[item["id"]] = Expected(dues[item["id"]])
            else:
                self.refused += 1

    def stop(self) -> None:
        self._stopped.set()
        self.join()


def freeze(process: DuetimeProcess) -> None:
    os.kill(process.process.pid, signal.SIGSTOP)


def thaw(process: DuetimeProcess) -> None:
    os.kill(process.process.pid, signal.SIGCONT)
