"""Runs ``duetime`` commands in the process of the test: starting one takes longer than most commands."""

from __future__ import annotations

import io
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from duetime.cli.main import run


class Cli:
    """Runs commands with ``options`` behind their own words."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *options: str) -> None:
        self._capsys = capsys
        self._options = options

    def __call__(self, *words: str, code: int = 0, stdin: str = "") -> tuple[str, str]:
        """Standard output and error of a command that ends with ``code``."""
        self._capsys.readouterr()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("sys.stdin", io.StringIO(stdin))
            ended = run([*words, *self._options])
        captured = self._capsys.readouterr()
        assert ended == code, captured.err
        return captured.out, captured.err

    def fails(self, *words: str, code: int, stdin: str = "") -> str:
        """The one line that says why."""
        out, error = self(*words, code=code, stdin=stdin)
        assert out == ""
        (line,) = error.splitlines()
        assert line.startswith("duetime: error: ")
        return line.removeprefix("duetime: error: ")


@contextmanager
def isolated() -> Iterator[pytest.MonkeyPatch]:
    """Without the variables that name the servers of a test run; and logging, which commands set up, as it was."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("DUETIME_")]:
            patch.delenv(name)
        yield patch
    root.handlers[:] = handlers
    root.setLevel(level)
