"""The ``duetime`` command as a process, followed by its log."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from tests.support.no_tls import NO_TLS

ROOT = Path(__file__).parent.parent.parent
START_SECONDS = 60
"""For whatever a process has to say: waits end when it does, and a machine that is busy may need long."""


def command_environment(**variables: str) -> dict[str, str]:
    """The environment for running ``python -m duetime.cli`` from this repository."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("DUETIME_")}
    return {**inherited, "PYTHONPATH": str(ROOT / "shared"), **variables}


class DuetimeProcess:
    """A ``duetime`` command that logs JSON. Killed at the end if it still runs."""

    def __init__(self, *arguments: str, cwd: Path, **variables: str) -> None:
        self.directory = cwd
        self.events: list[dict[str, Any]] = []
        self.noise: list[str] = []
        self._changed = threading.Condition()
        self._has_ended = False
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "duetime.cli", *arguments],
            cwd=cwd,
            env=command_environment(DUETIME_LOG_FORMAT="json", **variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._changed:
                try:
                    self.events.append(json.loads(line))
                except ValueError:
                    self.noise.append(line)
                self._changed.notify_all()
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()

    def of(self, action: str) -> list[dict[str, Any]]:
        """The events of this action so far."""
        with self._changed:
            return [event for event in self.events if event.get("action") == action]

    def wait_until(
        self, reached: Callable[[list[dict[str, Any]]], bool], what: str, *, timeout_seconds: float = START_SECONDS
    ) -> None:
        """Until ``reached`` holds for the events; ``AssertionError`` when the process ends first or time is up."""
        with self._changed:
            self._changed.wait_for(lambda: self._has_ended or reached(self.events), timeout_seconds)
            assert reached(self.events), f"no {what}:\n" + "\n".join([*map(str, self.events), *self.noise])

    def wait_for(self, action: str, *, timeout_seconds: float = START_SECONDS) -> dict[str, Any]:
        """The first event of this action."""
        self.wait_until(
            lambda events: any(event.get("action") == action for event in events),
            action,
            timeout_seconds=timeout_seconds,
        )
        return self.of(action)[0]

    def wait_for_shards(self, number: int, *, timeout_seconds: float = START_SECONDS) -> None:
        """Until this process (or its workers) has claimed ``number`` shards altogether, given back or not."""
        self.wait_until(lambda events: claimed(events) >= number, "claims", timeout_seconds=timeout_seconds)

    def terminate(self, *, timeout_seconds: float = 40) -> int:
        """SIGTERM, and the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.wait(timeout_seconds=timeout_seconds)

    def wait(self, *, timeout_seconds: float = 40) -> int:
        code = self.process.wait(timeout_seconds)
        self._read_to_the_end(timeout_seconds)
        return code

    def kill(self) -> None:
        """SIGKILL; nothing is left of it afterwards but its workers, which end by themselves."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._read_to_the_end(START_SECONDS)

    def _read_to_the_end(self, timeout_seconds: float) -> None:
        """Its workers write to the same log: this ends when the last of them has."""
        self._reader.join(timeout_seconds)
        if not self._reader.is_alive():
            assert self.process.stderr is not None
            self.process.stderr.close()


def claimed(events: Iterable[dict[str, Any]]) -> int:
    return sum(event["shards"] for event in events if event.get("action") == "shard.claimed")


def wait_for_exit(pid: int, *, timeout_seconds: float = 10) -> bool:
    """Whether the process, which need not be a child, ends in time."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], timeout_seconds)[0])
    finally:
        os.close(descriptor)


class DuetimeServer(DuetimeProcess):
    """``duetime serve`` on a free port, ready when constructed. One process, unless the test says otherwise."""

    def __init__(self, *arguments: str, cwd: Path, **variables: str) -> None:
        super().__init__("serve", "--port", "0", *arguments, cwd=cwd, **{"DUETIME_WORKERS": "1", **variables})
        try:
            self.url: str = self.wait_for("server.started")["url"]
        except BaseException:
            self.kill()
            raise
        self.client = httpx.Client(base_url=self.url, timeout=60, verify=NO_TLS)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.client.close()
        super().__exit__(kind, error, traceback)

    def create(self, timer_id: str, **body: Any) -> dict[str, Any]:
        """Create a timer in the namespace ``default``."""
        return self.ok("POST", "/timers", json={"id": timer_id, **body})

    def create_many(self, timers: list[dict[str, Any]]) -> None:
        for start in range(0, len(timers), 500):
            items = self.ok("POST", "/timers/batch", json={"timers": timers[start : start + 500]})["items"]
            assert {item["status"] for item in items} <= {200, 201}, items

    def ok(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        """The JSON of a request on the namespace ``default`` that must succeed."""
        answer = self.client.request(method, f"/v1/namespaces/default{path}", **options)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else {}


def in_seconds(seconds: float) -> str:
    """An instant from now, as the API takes it, in whole milliseconds."""
    at = datetime.now(UTC) + timedelta(seconds=seconds)
    return at.isoformat(timespec="milliseconds")
