"""Requests side by side: a request waits for the network, so a batch of them takes as long as the slowest few."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Workers:
    """At most ``count`` threads, shared by all callers of a store and started when first needed."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._lock = threading.Lock()
        self._executor: ThreadPoolExecutor | None = None

    def map(self, act: Callable[[T], R], values: Sequence[T]) -> list[R]:
        """``act`` of each value, in order. All of them are carried out, then the first error is raised."""
        if len(values) < 2 or self._count < 2:
            futures = [_carried_out(act, value) for value in values]
        else:
            pool = self._pool()
            futures = [pool.submit(act, value) for value in values]
            wait(futures)
        return [future.result() for future in futures]

    def close(self) -> None:
        with self._lock:
            executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown()

    def _pool(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._executor is None:
                self._executor = ThreadPoolExecutor(self._count, thread_name_prefix="calls")
            return self._executor


def _carried_out(act: Callable[[T], R], value: T) -> Future[R]:
    """``act(value)`` in this thread."""
    future: Future[R] = Future()
    try:
        future.set_result(act(value))
    except Exception as error:  # kept for whoever asks for the result
        future.set_exception(error)
    return future
