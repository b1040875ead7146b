"""kill -9 in the middle of an export and of an import: the same command again completes it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from duetime.cli.main import run
from duetime.runtime.clock import SystemClock
from duetime.stores.open import open_store
from tests.support.processes import ROOT, command_environment
from tests.support.transfer import exported, fill

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a store in ``old.db`` that has something of everything, and 1,500 timers."""
    directory = tmp_path_factory.mktemp("transfer")
    store = open_store(f"sqlite:///{directory}/old.db")
    store.initialise()
    fill(store, timers=1500)
    store.close()
    return directory


def killed(*arguments: str) -> None:
    environment = command_environment() | {"PYTHONPATH": f"{ROOT / 'shared'}{os.pathsep}{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.transfer_launcher", *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr


def contents(url: str) -> bytes:
    store = open_store(url)
    try:
        return exported(store, now=SystemClock().now())
    finally:
        store.close()


@pytest.mark.parametrize("number", [1, 10, 300, 511, 512, 900, 1530, 1590])
def test_an_export_that_was_killed_is_gone_on_with(house: Path, tmp_path: Path, number: int) -> None:
    source, file = f"sqlite:///{house}/old.db", tmp_path / "x.jsonl"
    words = ["export", "--store", source, "--output", str(file)]

    killed("record", str(number), *words)
    assert not file.exists()
    assert run([*words, "--resume"]) == 0

    # All but the header, which has the time, and what is summed up over it.
    lines = [line for line in file.read_bytes().splitlines() if b'"checksum"' not in line][1:]
    assert lines == [line for line in contents(source).splitlines() if b'"checksum"' not in line][1:]


@pytest.mark.parametrize(
    ("point", "number"), [("record", 100), ("record", 800), ("loaded", 3), ("loaded", 300), ("loaded", 1530)]
)
def test_an_import_that_was_killed_is_completed_by_the_same_command(
    house: Path, tmp_path: Path, point: str, number: int
) -> None:
    source, target, file = f"sqlite:///{house}/old.db", f"sqlite:///{tmp_path}/new.db", tmp_path / "x.jsonl"
    assert run(["export", "--store", source, "--output", str(file)]) == 0
    assert run(["init", "--store", target]) == 0
    words = ["import", "--store", target, "--input", str(file), "--no-key-check"]

    killed(point, str(number), *words)
    assert run([*words, "--verify-only"]) == 1
    assert run(words) == 0

    assert contents(target) == contents(source)
