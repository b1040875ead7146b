"""Answers requests that wait at the same time together, so that they share a write of the store.

Whoever comes while others are being answered is among the next ones. So a lone request does not wait, and the more
there are at once, the less each costs. The line is bounded by the server: each connection has one request in it
(``http.MAX_CONNECTIONS``), and large bodies do not come here.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Final, NamedTuple

AT_ONCE: Final = 100
"""One answer waits for the others: 100 keep it within some tens of milliseconds."""

Event = dict[str, Any]
Result = dict[str, Any]


class _Asked(NamedTuple):
    event: Event
    answer: asyncio.Future[Result]


class Together:
    """One thread that answers. ``ask`` and ``close`` belong to the event loop that runs.

    What arrives in one turn of the loop is handed over at its end: else the thread would take the first alone.
    """

    def __init__(self, answer: Callable[[Sequence[Event]], Sequence[Result]], *, at_once: int = AT_ONCE) -> None:
        self._answer = answer
        self._at_once = at_once
        self._arrived: list[_Asked] = []
        self._waiting: SimpleQueue[list[_Asked] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def ask(self, event: Event) -> asyncio.Future[Result]:
        """Return the response, once it is there. Raises what ``answer`` raises."""
        loop = asyncio.get_running_loop()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, args=(loop,), name="api-together", daemon=True)
            self._thread.start()
        if not self._arrived:
            loop.call_soon(self._hand_over)
        asked = _Asked(event, loop.create_future())
        self._arrived.append(asked)
        return asked.answer

    def _hand_over(self) -> None:
        if self._arrived:
            self._waiting.put(self._arrived)
            self._arrived = []

    def close(self) -> None:
        """Answer those that wait, and end."""
        self._hand_over()
        if self._thread is not None:
            self._waiting.put(None)
            self._thread.join()
            self._thread = None

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        is_open = True
        while is_open:
            asked, is_open = self._take()
            for start in range(0, len(asked), self._at_once):
                some = asked[start : start + self._at_once]
                results: Sequence[Result | Exception]
                try:
                    results = self._answer([each.event for each in some])
                except Exception as error:
                    results = [error] * len(some)
                with suppress(RuntimeError):  # the loop has closed: nobody waits any more
                    loop.call_soon_threadsafe(_tell, some, results)

    def _take(self) -> tuple[list[_Asked], bool]:
        """Return all that wait, once there are some; and whether there will be more."""
        asked: list[_Asked] = []
        arrived = self._waiting.get()
        with suppress(Empty):
            while arrived is not None:
                asked += arrived
                arrived = self._waiting.get_nowait()
            return asked, False
        return asked, True


def _tell(asked: Sequence[_Asked], results: Sequence[Result | Exception]) -> None:
    for each, result in zip(asked, results, strict=True):
        if each.answer.done():  # given up
            continue
        if isinstance(result, Exception):
            each.answer.set_exception(result)
        else:
            each.answer.set_result(result)
