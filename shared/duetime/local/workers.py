"""Further pollers in processes of their own, started again when they die and stopped with this one.

A worker stops when its standard input ends. That is how it is told to, and also what happens by itself when this
process is killed: no worker outlives it. Workers are in process groups of their own, so that a Ctrl-C reaches
them through here and once.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from duetime.domain.clock import Clock
from duetime.engine.stats import EngineSnapshot
from duetime.local.metrics import Observed
from duetime.runtime.metrics import read_snapshot, write_snapshot
from duetime.runtime.settings import variable

FIRST_BACKOFF_SECONDS = 0.5
MAX_BACKOFF_SECONDS = 30.0
SNAPSHOT_SECONDS = 1.0
STABLE_SECONDS = 60.0
"""A worker that lived this long starts again after the first back-off."""

logger = logging.getLogger(__name__)


@contextmanager
def snapshots_written(snapshot: Callable[[], EngineSnapshot], descriptor: int) -> Iterator[None]:
    """Write a line for ``WorkerService`` every SNAPSHOT_SECONDS, and a last one at the end. For workers.

    Ends when nobody reads any more, which the worker learns from its standard input. Uses no buffered stream: a
    daemon thread that is blocked in one would keep the interpreter from ending.
    """
    ended = threading.Event()

    def write() -> None:
        with suppress(OSError):  # a broken pipe
            is_last = False
            while not is_last:
                is_last = ended.wait(SNAPSHOT_SECONDS)
                line = write_snapshot(snapshot()) + b"\n"
                while line:
                    line = line[os.write(descriptor, line) :]

    thread = threading.Thread(target=write, name="snapshots", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(SNAPSHOT_SECONDS)


class WorkerService:
    """One worker process and its successors."""

    def __init__(self, number: int, *, environ: Mapping[str, str], stop_seconds: float, clock: Clock) -> None:
        self.name = f"worker-{number}"
        # A port can be listened on once: what a worker counts is shown by this process.
        self._environ = {**environ, variable("metrics_port"): "0"}
        self._stop_seconds = stop_seconds
        self._clock = clock
        self._heard: tuple[EngineSnapshot, float] | None = None

    def observe(self) -> Observed | None:
        """Return the last snapshot of the current worker, None before the first. From any thread."""
        heard = self._heard
        return None if heard is None else Observed(heard[0], self._clock.monotonic() - heard[1])

    async def run(self, stop: asyncio.Event) -> None:
        backoff = FIRST_BACKOFF_SECONDS
        while not stop.is_set():
            started_at = self._clock.monotonic()
            process = await self._start()
            listening = asyncio.ensure_future(self._listen(process))
            try:
                if await _stopped_while(process.wait(), stop):
                    await self._stop(process)
                    return
            finally:
                listening.cancel()
                await asyncio.gather(listening, return_exceptions=True)
                self._heard = None
            if self._clock.monotonic() - started_at >= STABLE_SECONDS:
                backoff = FIRST_BACKOFF_SECONDS
            logger.error(
                "a worker ended and starts again",
                extra={
                    "action": "worker.ended",
                    "worker": self.name,
                    "exit_code": process.returncode,
                    "backoff_seconds": backoff,
                },
            )
            await _stopped_while(asyncio.sleep(backoff), stop)
            backoff = min(backoff * 2, MAX_BACKOFF_SECONDS)

    async def _start(self) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "duetime.cli", "worker", "--stop-on-eof", "--snapshots"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=self._environ,
            process_group=0,
        )
        logger.info("a worker started", extra={"action": "worker.started", "worker": self.name, "pid": process.pid})
        return process

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        """Keep the last snapshot. Lines are bounded by the stream's limit; what is no snapshot is dropped."""
        assert process.stdout is not None
        while True:
            try:
                line = await process.stdout.readline()
                if not line:
                    return
                self._heard = read_snapshot(line), self._clock.monotonic()
            except ValueError as error:
                logger.debug(
                    "a worker wrote no snapshot: %s", error, extra={"action": "worker.babbled", "worker": self.name}
                )

    async def _stop(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), self._stop_seconds)
        except TimeoutError:
            logger.error("a worker did not stop", extra={"action": "worker.killed", "worker": self.name})
            process.kill()
            await process.wait()


async def _stopped_while(work: Coroutine[Any, Any, object], stop: asyncio.Event) -> bool:
    """Wait for ``work`` or for ``stop``, whichever comes first; True when it was ``stop``. ``work`` is cancelled."""
    tasks = [asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return stop.is_set()
