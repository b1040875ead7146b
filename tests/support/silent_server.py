"""Servers that do not answer."""

from __future__ import annotations

import socket
import time

import pytest

from duetime.domain.errors import StoreUnavailable
from duetime.stores.open import open_store

SECONDS = 8
"""More than is asked for: the machine may be busy."""


def check_is_refused_in_time(scheme: str, database: str, *, is_listening: bool) -> None:
    """Asserts that a store says within ``SECONDS`` that its server cannot be reached, and where.

    Nobody listens on the port, or (``is_listening``) it takes connections and says nothing.
    """
    started = time.monotonic()
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        if is_listening:
            reserved.listen()
        where = f"127.0.0.1:{reserved.getsockname()[1]}/{database}"
        store = open_store(f"{scheme}://user:hunter2@{where}")
        with pytest.raises(StoreUnavailable) as raised:
            store.check()
        store.close()

    assert raised.value.message == f"the database at {where} cannot be reached"
    assert time.monotonic() - started < SECONDS
