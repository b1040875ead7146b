"""Instants as rows have them, in milliseconds since 1970, and back. Many rows share one: the due time of a burst, the
creation time of a batch."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache

from duetime.domain.times import MIN_INSTANT, to_milliseconds

instant = lru_cache(maxsize=4096)(lambda milliseconds: MIN_INSTANT + timedelta(milliseconds=milliseconds))
milliseconds = lru_cache(maxsize=4096)(to_milliseconds)


def optional_milliseconds(at: datetime | None) -> int | None:
    return None if at is None else milliseconds(at)


def optional_instant(at: int | None) -> datetime | None:
    return None if at is None else instant(at)
