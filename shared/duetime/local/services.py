"""Running a few services in one process: start, first signal, orderly stop, second signal.

The main thread does this and nothing else. Its event loop wakes for signals whichever thread they are delivered
to. What works has a thread and an event loop of its own, so that no service waits for another.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

from duetime.runtime import garbage

T = TypeVar("T")

OnLine = Callable[[bytes], None]

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

logger = logging.getLogger(__name__)


class Service(Protocol):
    @property
    def name(self) -> str: ...

    async def run(self, stop: asyncio.Event) -> None:
        """Work until ``stop`` is set, then finish the work in progress. Ending before that is a failure."""
        ...


@dataclass(frozen=True, slots=True)
class ThreadService:
    """``work`` in a thread of its own, until ``request_stop`` makes it return. Both are called once."""

    name: str
    work: Callable[[], None]
    request_stop: Callable[[], None]

    async def run(self, stop: asyncio.Event) -> None:
        working = asyncio.ensure_future(in_thread(self.name, self.work))
        stopping = asyncio.ensure_future(stop.wait())
        await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not working.done():
            self.request_stop()
        await working


def run_services(services: Sequence[Service], *, stop_seconds: float, on_line: OnLine | None = None) -> int:
    """Run until SIGTERM, SIGINT, SIGHUP or, with ``on_line``, the end of standard input; the exit code.

    ``on_line`` is given the lines of standard input, in a thread of its own.
    The first signal stops all services at once and waits ``stop_seconds`` for them; a second one ends the process
    where it stands. A service that fails stops the others: 1. So does one that does not stop in time.
    """
    garbage.begin_to_serve()
    return asyncio.run(_run_services(services, stop_seconds=stop_seconds, on_line=on_line))


async def _run_services(services: Sequence[Service], *, stop_seconds: float, on_line: OnLine | None) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in STOP_SIGNALS:
        if number is signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
            continue  # by nohup: it is to outlive its terminal
        loop.add_signal_handler(number, _on_signal, number, stop)
    if on_line is not None:
        eof = loop.create_task(in_thread("stdin", partial(_read_lines, on_line)))
        eof.add_done_callback(lambda _: stop.set())
    running = {loop.create_task(service.run(stop)): service.name for service in services}
    stopping = loop.create_task(stop.wait())

    await asyncio.wait([stopping, *running], return_when=asyncio.FIRST_COMPLETED)
    has_failed = not stop.is_set()
    stop.set()
    _, late = await asyncio.wait(running, timeout=stop_seconds)
    for task, name in running.items():
        if task in late:
            logger.error("a service did not stop in time", extra={"action": "service.stuck", "service": name})
        elif error := task.exception():
            logger.error("a service failed", exc_info=error, extra={"action": "service.failed", "service": name})
            has_failed = True
        elif has_failed:
            logger.info("a service ended", extra={"action": "service.ended", "service": name})
    if late:
        _exit_now(1)
    return 1 if has_failed else 0


def _on_signal(number: signal.Signals, stop: asyncio.Event) -> None:
    if stop.is_set():
        if number is signal.SIGHUP:  # a terminal's end comes from its shell and from the kernel
            return
        logger.warning("stopping at once", extra={"action": "service.killed", "signal": number.name})
        _exit_now(128 + number)
    logger.info(
        "stopping; callbacks in flight may finish (a second signal ends them)",
        extra={"action": "service.stopping", "signal": number.name},
    )
    stop.set()


def _exit_now(code: int) -> None:
    """End the process without waiting for any thread."""
    logging.shutdown()
    os._exit(code)


def _read_lines(on_line: OnLine) -> None:
    """Read until the end, unbuffered: a thread blocked in a buffered stream keeps the interpreter from ending."""
    rest = b""
    while read := os.read(0, 65_536):
        *lines, rest = (rest + read).split(b"\n")
        for line in lines:
            on_line(line)


async def in_thread(name: str, work: Callable[[], T]) -> T:
    """Run ``work`` in a daemon thread of its own, and return its result."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(error: BaseException | None, result: T | None) -> None:
        if future.done():  # nobody waits any more
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]  # None only when T is

    def target() -> None:
        error: BaseException | None = None
        result: T | None = None
        try:
            result = work()
        except SystemExit as exit_:  # in the main thread it would end the loop, and the orderly stop with it
            error = RuntimeError(f"{name} exited with {exit_.code}")
        except BaseException as raised:
            error = raised
        loop.call_soon_threadsafe(settle, error, result)

    threading.Thread(target=target, name=name, daemon=True).start()
    return await future
