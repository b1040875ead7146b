"""Further pollers in processes of their own, started again when they die and stopped with this one.

A worker stops when its standard input ends. That is how it is told to, and also what happens by itself when this
process is killed: no worker outlives it. Workers are in process groups of their own, so that a Ctrl-C reaches
them through here and once.

Hints go both ways: lines on a worker's standard input, and beside the snapshots on its standard output.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any

from duetime.domain.clock import Clock
from duetime.engine.stats import EngineSnapshot
from duetime.local.hints import Due, Tell, is_hint, read_hint, write_hint
from duetime.local.metrics import Observed
from duetime.runtime.metrics import read_snapshot, write_snapshot
from duetime.runtime.settings import variable

FIRST_BACKOFF_SECONDS = 0.5
MAX_BACKOFF_SECONDS = 30.0
SNAPSHOT_SECONDS = 1.0
STABLE_SECONDS = 60.0
"""A worker that lived this long starts again after the first back-off."""
MAX_UNREAD_BYTES = 65_536
"""Of hints, to a worker that does not read. Further ones are dropped."""
MAX_LINE_BYTES = 1_048_576
"""Of a worker: a hint of some 50,000 shards."""

logger = logging.getLogger(__name__)


@contextmanager
def reports_written(snapshot: Callable[[], EngineSnapshot], descriptor: int) -> Iterator[Tell]:
    """Write lines for ``WorkerService``: a snapshot every SNAPSHOT_SECONDS, and a last one at the end. For workers.

    Gives what is told of hints, which are written at once; those that arrive during a write become one.
    Ends when nobody reads any more, which the worker learns from its standard input. Uses no buffered stream: a
    daemon thread that is blocked in one would keep the interpreter from ending.
    """
    changed = threading.Condition()
    due: dict[int, datetime] = {}
    has_ended = False

    def tell(more: Due) -> None:
        with changed:
            for shard_id, at in more.items():
                due[shard_id] = min(at, due.get(shard_id, at))
            changed.notify()

    def write() -> None:
        is_last, next_at = False, time.monotonic() + SNAPSHOT_SECONDS
        with suppress(OSError):  # a broken pipe
            while not is_last:
                with changed:
                    changed.wait_for(lambda: due or has_ended, next_at - time.monotonic())
                    is_last, hinted = has_ended, dict(due)
                    due.clear()
                if hinted:
                    _write_all(descriptor, write_hint(hinted))
                if is_last or time.monotonic() >= next_at:
                    _write_all(descriptor, write_snapshot(snapshot()) + b"\n")
                    next_at = time.monotonic() + SNAPSHOT_SECONDS

    thread = threading.Thread(target=write, name="reports", daemon=True)
    thread.start()
    try:
        yield tell
    finally:
        with changed:
            has_ended = True
            changed.notify()
        thread.join(SNAPSHOT_SECONDS)


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def hints_read(hear: Tell) -> Callable[[bytes], None]:
    """Return what takes the lines of a worker's standard input. What is no hint is dropped."""

    def take(line: bytes) -> None:
        try:
            due = read_hint(line)
        except ValueError as error:
            logger.debug("standard input: %s", error, extra={"action": "worker.input_dropped"})
        else:
            hear(due)

    return take


class WorkerService:
    """One worker process and its successors."""

    def __init__(
        self,
        number: int,
        *,
        environ: Mapping[str, str],
        stop_seconds: float,
        clock: Clock,
        on_hint: Callable[[WorkerService, Due], None],
    ) -> None:
        """``on_hint``: called in the loop with this service and what its worker hints."""
        self.name = f"worker-{number}"
        # A port can be listened on once: what a worker counts is shown by this process.
        self._environ = {**environ, variable("metrics_port"): "0"}
        self._stop_seconds = stop_seconds
        self._clock = clock
        self._on_hint = on_hint
        self._heard: tuple[EngineSnapshot, float] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._input: asyncio.StreamWriter | None = None
        """Of the current worker."""

    def observe(self) -> Observed | None:
        """Return the last snapshot of the current worker, None before the first. From any thread."""
        heard = self._heard
        return None if heard is None else Observed(heard[0], self._clock.monotonic() - heard[1])

    def tell(self, due: Due) -> None:
        """Tell the worker. Dropped when there is none, or when it does not read."""
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # the loop has closed
                loop.call_soon_threadsafe(self._tell, due)

    def _tell(self, due: Due) -> None:
        pipe = self._input
        if pipe is None or pipe.is_closing() or pipe.transport.get_write_buffer_size() > MAX_UNREAD_BYTES:
            return
        pipe.write(write_hint(due))

    async def run(self, stop: asyncio.Event) -> None:
        self._loop = asyncio.get_running_loop()
        backoff = FIRST_BACKOFF_SECONDS
        while not stop.is_set():
            started_at = self._clock.monotonic()
            process = await self._start()
            self._input = process.stdin
            listening = asyncio.ensure_future(self._listen(process))
            try:
                if await _stopped_while(process.wait(), stop):
                    await self._stop(process)
                    return
            finally:
                listening.cancel()
                await asyncio.gather(listening, return_exceptions=True)
                self._heard = self._input = None
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
            # -P: no file of the working directory is imported.
            *(sys.executable, "-P", "-m", "duetime.cli", "worker", "--stop-on-eof", "--reports"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=MAX_LINE_BYTES,
            env=self._environ,
            process_group=0,
        )
        logger.info("a worker started", extra={"action": "worker.started", "worker": self.name, "pid": process.pid})
        return process

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        """Keep the last snapshot, and pass hints on. Lines are bounded by the stream's limit; others are dropped."""
        assert process.stdout is not None
        while True:
            try:
                line = await process.stdout.readline()
                if not line:
                    return
                if is_hint(line):
                    self._on_hint(self, read_hint(line))
                else:
                    self._heard = read_snapshot(line), self._clock.monotonic()
            except ValueError as error:
                logger.debug(
                    "a worker wrote neither a snapshot nor a hint: %s",
                    error,
                    extra={"action": "worker.babbled", "worker": self.name},
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
