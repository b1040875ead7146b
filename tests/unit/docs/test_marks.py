"""The directories that the Makefile names for slow tests are all that have any."""

from __future__ import annotations

import re

from tests.support.processes import ROOT


def test_slow_tests_are_where_make_test_slow_looks() -> None:
    marked = [
        path.relative_to(ROOT)
        for path in (ROOT / "tests").rglob("test_*.py")
        if re.search(r"pytest\.mark\.slow\b", path.read_text()) and path.name != "test_marks.py"
    ]
    named = re.search(r"^SLOW_DIRECTORIES := (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert marked
    assert named
    assert [path for path in marked if not str(path).startswith(tuple(named[1].split()))] == []
