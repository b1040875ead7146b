from __future__ import annotations

from collections.abc import Iterator

import pytest

from duetime.testing.virtual_time import VirtualClock
from tests.support.clock import NOW
from tests.support.executing import Executing
from tests.support.stores import memory_store


@pytest.fixture
def executing() -> Iterator[Executing]:
    with memory_store() as store:
        yield Executing(store, VirtualClock(NOW))
