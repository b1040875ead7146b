"""A store that is called supported was met by the suites, on the version that the table has."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from duetime.stores.kinds import KINDS, SupportLevel
from scripts.compare_levels import SUITES, is_version_of, unproved
from tests.support.met import suite_of
from tests.support.processes import ROOT

NAMED = {kind.name: kind for kind in KINDS}
SUPPORTED = [kind for kind in KINDS if kind.level is SupportLevel.SUPPORTED]
MET = [
    {
        "store": kind.schemes[0],
        "version": kind.ran_on + (".1-MariaDB" if kind.name == "MariaDB" else ""),
        "suite": suite,
        "passed": 1,
    }
    for kind in SUPPORTED
    for suite in SUITES
]


@pytest.mark.parametrize(
    ("name", "version", "is_it"),
    [
        ("PostgreSQL", "PostgreSQL 18.6 on x86_64-pc-linux-gnu, compiled by gcc 14.2.1, 64-bit", True),
        ("PostgreSQL", "PostgreSQL 17.18 on x86_64-pc-linux-gnu", False),
        ("PostgreSQL", "PostgreSQL 180.1", False),
        ("MariaDB", "10.11.19-MariaDB-0+deb12u1", True),
        ("MariaDB", "11.4.10-MariaDB", False),
        ("SQLite", "SQLite 3.40.1", True),
    ],
)
def test_a_version_is_the_one_of_the_table_as_far_as_that_has_it(name: str, version: str, is_it: bool) -> None:
    assert is_version_of(NAMED[name], version) is is_it


def test_a_relative_that_speaks_the_same_protocol_is_another_server() -> None:
    assert not is_version_of(NAMED["SQLite"], "3.1-MariaDB")


def test_what_was_met_proves_what_is_supported() -> None:
    assert unproved(MET) == []


@pytest.mark.parametrize("lack", [{"passed": 0}, {"version": "0"}, {"suite": "another"}, {"store": "another"}])
def test_each_suite_of_each_supported_store_must_have_passed_on_it(lack: dict[str, object]) -> None:
    for place, each in enumerate(MET):
        (line,) = unproved([*MET[:place], each | lack, *MET[place + 1 :]])
        assert repr(each["suite"]) in line


def test_the_suites_are_found_by_the_files_that_have_them() -> None:
    files = [path for path in (ROOT / "tests").rglob("test_*.py") if suite_of(path) is not None]

    assert {suite_of(path) for path in files} == set(SUITES)


@pytest.mark.parametrize("is_proved", [True, False])
def test_ci_fails_where_something_is_not_proved(is_proved: bool, tmp_path: Path) -> None:
    file = tmp_path / "met.jsonl"
    if is_proved:
        file.write_text("".join(json.dumps(each) + "\n" for each in MET))

    ran = subprocess.run([sys.executable, "-m", "scripts.compare_levels", str(file)], cwd=ROOT, capture_output=True)

    assert ran.returncode == (0 if is_proved else 1)
    assert (b"is called supported" in ran.stderr) is not is_proved
