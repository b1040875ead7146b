from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.callbacks import CallbackReceiver
from tests.support.processes import DuetimeServer


@pytest.fixture
def receiver() -> Iterator[CallbackReceiver]:
    with CallbackReceiver() as receiver:
        yield receiver


@pytest.fixture
def server(tmp_path: Path) -> Iterator[DuetimeServer]:
    """``duetime serve`` with defaults, in an empty directory."""
    with DuetimeServer(cwd=tmp_path) as server:
        yield server
