from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.callbacks import CallbackReceiver
from tests.support.commands import Cli, isolated
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


@pytest.fixture
def cli(server: DuetimeServer, capsys: pytest.CaptureFixture[str]) -> Iterator[Cli]:
    """Commands in the directory of the server, and for it."""
    with isolated() as patch:
        patch.chdir(server.directory)
        patch.setenv("DUETIME_URL", server.url)
        yield Cli(capsys)
