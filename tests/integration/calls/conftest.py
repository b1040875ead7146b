from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.executing import Executing
from tests.support.stores import memory_store
from tests.support.virtual_time import VirtualClock


@pytest.fixture
def executing() -> Iterator[Executing]:
    with memory_store() as store:
        yield Executing(store, VirtualClock())
