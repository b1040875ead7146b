"""Requests side by side: a request waits for the network, so a batch of them takes as long as the slowest few."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Workers:
    """At most ``count`` threads, shared by all callers of a store and started when first needed."""

    def __init__(self, count: int) -> None:
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="calls")

    def map(self, act: Callable[[T], R], values: Sequence[T]) -> list[R]:
        """Return ``act`` of each value, in order. All are carried out, then the first error is raised."""
        if len(values) == 1:
            return [act(values[0])]
        futures = [self._pool.submit(act, value) for value in values]
        wait(futures)
        return [future.result() for future in futures]

    def close(self) -> None:
        self._pool.shutdown()
