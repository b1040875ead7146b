"""Attempts to change a call: each has a name of its own, and the names sort by the time they were made."""

from __future__ import annotations

import time
from collections.abc import Callable
from uuid import uuid4


class Attempts:
    """``now_s``: the process's clock in seconds since the epoch, which may differ from others' by seconds."""

    def __init__(self, now_s: Callable[[], float] = time.time) -> None:
        self._now_s = now_s

    def next(self, *, above: str | None = None) -> str:
        """A new name, which sorts behind ``above``."""
        milliseconds = int(self._now_s() * 1000)
        if above:
            milliseconds = max(milliseconds, _milliseconds(above) + 1)
        return f"{milliseconds:016d}-{uuid4().hex}"

    def age_seconds(self, attempt: str) -> float:
        return self._now_s() - _milliseconds(attempt) / 1000


def _milliseconds(attempt: str) -> int:
    return int(attempt[:16])
