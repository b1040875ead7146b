from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from duetime.cli.main import run
from duetime.stores.port.store import Store
from tests.support.stores import file_store


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """Commands set up logging for their whole process; here that is the test run's."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture(autouse=True)
def _without_settings() -> Iterator[None]:
    """Commands warn of variables that are no settings, such as those that name the servers of a test run."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("DUETIME_")]:
            patch.delenv(name)
        yield


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/timers.db"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with file_store(tmp_path / "timers.db") as store:
        yield store


class Cli:
    """Runs commands with ``--store``."""

    def __init__(self, url: str, capsys: pytest.CaptureFixture[str]) -> None:
        self._url = url
        self._capsys = capsys

    def __call__(self, *words: str, code: int = 0) -> tuple[str, str]:
        """Standard output and error of a command that ends with ``code``."""
        assert run([*words, "--store", self._url]) == code
        captured = self._capsys.readouterr()
        return captured.out, captured.err

    def fails(self, *words: str, code: int) -> str:
        """The one line that says why."""
        out, error = self(*words, code=code)
        assert out == ""
        (line,) = error.splitlines()
        return line.removeprefix("duetime: error: ")


@pytest.fixture
def cli(url: str, capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(url, capsys)
