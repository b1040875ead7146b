"""Do the tests notice? ``make mutate`` puts one wrong line at a time into a copy of the sources, and runs the nearest
tests there.

A mutant is *killed* when they fail, and has *survived* when they pass. Mutation tools make thousands of mutants, most
of them equal to what they came from; these are the mistakes that would cost a promise. Fails when one survives.
"""

from __future__ import annotations

import argparse
import compileall
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from pathlib import Path
from py_compile import PycInvalidationMode
from queue import SimpleQueue

from tests.mutation.mutants import MUTANTS, Mutant

ROOT = Path(__file__).parent.parent.parent
_TIMEOUT_SECONDS = 300
_OUTPUT = "pytest.txt"
_FAST = "not slow and not server and not repeated"


class Fate(StrEnum):
    KILLED = "killed"
    SURVIVED = "survived"
    BROKEN = "broken"
    """The tests fail without the mutant, or cannot be run."""


def copy_sources(folder: Path) -> None:
    """What git tracks, as it is in the working tree, and what is generated of it."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True)
    for name in listed.stdout.split("\0"):
        source = ROOT / name
        if name and source.is_file():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
    subprocess.run([sys.executable, "hatch_build.py"], cwd=folder / "clients" / "python", check=True)
    # By what stands in it, and not by its time: so the file with the mistake alone is compiled anew.
    compileall.compile_dir(folder / "shared", quiet=1, invalidation_mode=PycInvalidationMode.CHECKED_HASH)


def tests_pass(folder: Path, tests: tuple[str, ...], *, timeout_seconds: float) -> bool | None:
    """None when pytest ran no test. The end of what it printed is in ``folder``."""
    (folder / _OUTPUT).write_text(f"no end after {timeout_seconds:.0f} s")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", _FAST, *tests]
    environment = {
        **os.environ,
        "PYTHONPATH": f"{folder / 'shared'}{os.pathsep}{folder / 'clients' / 'python'}",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    try:
        ended = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, timeout=timeout_seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return False  # a loop without an end is noticed too
    (folder / _OUTPUT).write_bytes(ended.stdout[-4000:])
    return {0: True, 1: False}.get(ended.returncode)


def fate_of(mutant: Mutant, folder: Path) -> Fate:
    file = folder / mutant.path
    text = file.read_text()
    try:
        file.write_text(mutant.applied(text))
        passed = tests_pass(folder, mutant.tests, timeout_seconds=_TIMEOUT_SECONDS)
    finally:
        file.write_text(text)
    if passed is None:
        return Fate.BROKEN
    return Fate.SURVIVED if passed else Fate.KILLED


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time (default: 2)")
    parser.add_argument("--path", default="", help="only mutants of files whose path has this text")
    given = parser.parse_args()
    mutants = [mutant for mutant in MUTANTS if given.path in mutant.path]
    with tempfile.TemporaryDirectory(prefix="duetime-mutants-") as made:
        folders: SimpleQueue[Path] = SimpleQueue()
        for number in range(given.jobs):
            copy_sources(Path(made) / str(number))
            folders.put(Path(made) / str(number))

        def in_a_copy(mutant: Mutant) -> Fate:
            folder = folders.get()
            try:
                return fate_of(mutant, folder)
            finally:
                folders.put(folder)

        nearest = tuple(sorted({test for mutant in mutants for test in mutant.tests}))
        if not tests_pass(Path(made) / "0", nearest, timeout_seconds=10 * _TIMEOUT_SECONDS):
            print((Path(made) / "0" / _OUTPUT).read_text(), "the tests fail without any mutant", sep="\n")
            return 1
        with ThreadPoolExecutor(given.jobs) as pool:
            fates = pool.map(in_a_copy, mutants)
            counts = dict.fromkeys(Fate, 0)
            for mutant, fate in zip(mutants, fates, strict=True):
                counts[fate] += 1
                print(f"{fate:9} {mutant.path}: {mutant.harm}", flush=True)
    print(", ".join(f"{count} {fate}" for fate, count in counts.items()))
    return int(counts[Fate.KILLED] < len(mutants))


if __name__ == "__main__":
    sys.exit(main())
