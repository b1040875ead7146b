"""``duetime-client`` as ``pip`` builds it: complete, and without the server."""

from __future__ import annotations

import shutil
import subprocess
import sys
from email import message_from_bytes
from pathlib import Path
from zipfile import ZipFile

import pytest

SOURCE = Path(__file__).parents[3] / "clients" / "python"


@pytest.mark.parametrize("build", ["build_wheel", "build_editable"])
def test_a_build_makes_the_blocking_client(build: str, tmp_path: Path) -> None:
    checkout = tmp_path / "python"
    shutil.copytree(SOURCE, checkout, ignore=shutil.ignore_patterns("blocking", "__pycache__"))
    program = f"import hatchling.build; print(hatchling.build.{build}({str(tmp_path)!r}))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=checkout, capture_output=True, text=True, timeout=120, check=True
    )

    made = {path.name for path in (checkout / "duetime_client" / "blocking").glob("*.py")}
    assert made == {path.name for path in (checkout / "duetime_client" / "asynchronous").glob("*.py")}
    with ZipFile(tmp_path / done.stdout.split()[-1]) as wheel:
        names = set(wheel.namelist())
        (metadata,) = [wheel.read(name) for name in names if name.endswith("/METADATA")]
    assert build == "build_editable" or {f"duetime_client/blocking/{name}" for name in made} <= names
    requirements = {each.split(">")[0] for each in message_from_bytes(metadata).get_all("Requires-Dist", [])}
    assert requirements == {"anyio", "httpx", "uuid6"}
