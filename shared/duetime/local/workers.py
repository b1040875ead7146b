"""Further pollers in processes of their own, started again when they die and stopped with this one.

A worker stops when its standard input ends. That is how it is told to, and also what happens by itself when this
process is killed: no worker outlives it. Workers are in process groups of their own, so that a Ctrl-C reaches
them through here and once.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Coroutine, Mapping
from typing import Any

from duetime.domain.clock import Clock

FIRST_BACKOFF_SECONDS = 0.5
MAX_BACKOFF_SECONDS = 30.0
STABLE_SECONDS = 60.0
"""A worker that lived this long starts again after the first back-off."""

logger = logging.getLogger(__name__)


class WorkerService:
    """One worker process and its successors."""

    def __init__(self, number: int, *, environ: Mapping[str, str], stop_seconds: float, clock: Clock) -> None:
        self.name = f"worker-{number}"
        self._environ = dict(environ)
        self._stop_seconds = stop_seconds
        self._clock = clock

    async def run(self, stop: asyncio.Event) -> None:
        backoff = FIRST_BACKOFF_SECONDS
        while not stop.is_set():
            started_at = self._clock.monotonic()
            process = await self._start()
            if await _stopped_while(process.wait(), stop):
                await self._stop(process)
                return
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
            *(sys.executable, "-m", "duetime.cli", "worker", "--stop-on-eof"),
            stdin=asyncio.subprocess.PIPE,
            env=self._environ,
            process_group=0,
        )
        logger.info("a worker started", extra={"action": "worker.started", "worker": self.name, "pid": process.pid})
        return process

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
