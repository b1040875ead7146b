from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from duetime.stores.core.store import Store
from tests.support.commands import Cli, isolated
from tests.support.stores import file_store


@pytest.fixture(autouse=True)
def _isolated() -> Iterator[None]:
    with isolated():
        yield


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/timers.db"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with file_store(tmp_path / "timers.db") as store:
        yield store


@pytest.fixture
def cli(url: str, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Commands on the store."""
    return Cli(capsys, "--store", url)
