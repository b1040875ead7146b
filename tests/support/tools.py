"""Programs of the tools that live in environments of their own, ``.venv-<tool>`` (see the Makefile)."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]


def tool_program(tool: str, program: str) -> str:
    """The path of a program, with its environment installed if it is not yet, by this interpreter."""
    path = _ROOT / f".venv-{tool}" / "bin" / program
    if not path.exists():
        command = ["make", "--silent", f"PYTHON={sys.executable}", f".venv-{tool}/.installed"]
        with (_ROOT / "requirements" / f"{tool}.txt").open() as requirements:
            fcntl.flock(requirements, fcntl.LOCK_EX)  # several test processes may want it at once
            subprocess.run(command, cwd=_ROOT, check=True)
    return str(path)
