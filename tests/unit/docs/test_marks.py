"""The directories that the Makefile names for some tests are all that have any."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.processes import ROOT

FILES = sorted(path.relative_to(ROOT) for path in (ROOT / "tests").rglob("test_*.py"))


def outside(name: str, files: list[Path]) -> list[Path]:
    """Those that are in none of the directories that the Makefile names so."""
    named = re.search(rf"^{name} := (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert named
    return [path for path in files if not str(path).startswith(tuple(f"{each}/" for each in named[1].split()))]


def test_slow_tests_are_where_make_test_slow_looks() -> None:
    marked = [path for path in FILES if re.search(r"pytest\.mark\.slow\b", (ROOT / path).read_text())]
    assert marked
    assert outside("SLOW_DIRECTORIES", marked) == []


def test_all_tests_but_those_with_tools_of_their_own_are_where_make_test_looks() -> None:
    assert {path.parent for path in outside("FAST_DIRECTORIES", FILES)} == {
        Path("tests/console"),
        Path("tests/openapi"),
    }
