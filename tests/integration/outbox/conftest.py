"""Webhooks in virtual time. The tests of the relay (test_on_sqlite.py) have a store of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from duetime.stores.core.store import Store
from tests.support.stores import memory_store
from tests.support.webhooks import WebhookWorld


@pytest.fixture
def store() -> Iterator[Store]:
    with memory_store() as opened:
        yield opened


@pytest.fixture
def world(store: Store) -> WebhookWorld:
    return WebhookWorld(store)
