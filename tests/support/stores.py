"""Stores for tests that are not about stores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from duetime.stores.open import open_store
from duetime.stores.port import Store
from duetime.stores.time_source import TimeSource


@contextmanager
def memory_store() -> Iterator[Store]:
    """An empty SQLite store in memory that takes its times from the caller."""
    store = open_store("sqlite://", time_source=TimeSource.CALLER)
    try:
        store.initialise()
        yield store
    finally:
        store.close()
