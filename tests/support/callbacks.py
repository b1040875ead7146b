"""A receiver of callbacks in the test process: what arrived, when, and waiting for it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from types import TracebackType
from typing import Any, Self

from tests.support.receiver import Exchange, Receiver, reply


@dataclass(frozen=True)
class Arrival:
    body: dict[str, Any]
    headers: dict[str, str]
    at: datetime
    raw: bytes = b""
    """The body as it arrived, which is what a signature is about."""

    @property
    def timer_id(self) -> str:
        return str(self.body["timerId"])

    @property
    def lateness_seconds(self) -> float:
        return (self.at - datetime.fromisoformat(self.body["executeAt"])).total_seconds()


Reply = tuple[int, bytes]
Answer = Callable[[Arrival], Reply]


async def _in_own_thread(work: Callable[[], Reply]) -> Reply:
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Reply] = loop.create_future()

    def end(answer: Reply) -> None:
        if not done.done():
            done.set_result(answer)

    def run() -> None:
        answer = work()
        with suppress(RuntimeError):  # nobody waits for it any more
            loop.call_soon_threadsafe(end, answer)

    threading.Thread(target=run, daemon=True).start()
    return await done


class CallbackReceiver:
    """``answer`` runs in a thread of its own for each callback and may block to keep the callback in flight.

    Without one each is answered an empty 200 at once.
    """

    def __init__(self, answer: Answer | None = None) -> None:
        self.answer = answer
        self.arrivals: list[Arrival] = []
        self._changed = threading.Condition()
        self._receiver = Receiver(default=self._receive)

    def __enter__(self) -> Self:
        self._receiver.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._receiver.__exit__(kind, error, traceback)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._receiver.port}/callback"

    async def _receive(self, exchange: Exchange) -> None:
        request, at = exchange.request, datetime.now(UTC)
        arrival = Arrival(json.loads(request.body), dict(request.headers), at, request.body)
        with self._changed:
            self.arrivals.append(arrival)
            self._changed.notify_all()
        answer = self.answer
        status, body = (200, b"") if answer is None else await _in_own_thread(partial(answer, arrival))
        await reply(status, body)(exchange)

    def counts(self) -> Counter[str]:
        """How often each timer arrived."""
        with self._changed:
            return Counter(arrival.timer_id for arrival in self.arrivals)

    def wait_for(self, reached: Callable[[Counter[str]], bool], *, timeout_seconds: float = 120) -> None:
        """Until ``reached`` holds for the counts; ``AssertionError`` when it does not in time."""
        self.wait_until(lambda: reached(self.counts()), timeout_seconds=timeout_seconds)

    def wait_until(self, holds: Callable[[], bool], *, timeout_seconds: float = 120) -> None:
        """Until ``holds``, which is asked at each arrival; ``AssertionError`` when it does not in time."""
        with self._changed:
            is_reached = self._changed.wait_for(holds, timeout_seconds)
            assert is_reached, f"only {len(self.arrivals)} callbacks in {timeout_seconds} s"

    def kill_after(self, number: int, process: subprocess.Popen[str]) -> None:
        """Kill ``process`` once ``number`` more callbacks have arrived: at a moment that no clock decides."""
        reached = len(self.arrivals) + number
        self.wait_until(lambda: len(self.arrivals) >= reached)
        process.kill()

    def wait_for_timers(self, number: int, *, timeout_seconds: float = 120) -> None:
        """Until ``number`` different timers have arrived."""
        self.wait_for(lambda counts: len(counts) >= number, timeout_seconds=timeout_seconds)

    def wait_for_timer(self, timer_id: str, *, timeout_seconds: float = 30) -> Arrival:
        """The first arrival of a timer."""
        self.wait_for(lambda counts: timer_id in counts, timeout_seconds=timeout_seconds)
        return next(arrival for arrival in self.arrivals if arrival.timer_id == timer_id)
