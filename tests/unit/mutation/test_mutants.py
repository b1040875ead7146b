"""The list of ``make mutate`` fits the sources that it is about."""

from __future__ import annotations

from pathlib import Path

from tests.mutation.mutants import MUTANTS

ROOT = Path(__file__).parent.parent.parent.parent


def test_a_mutant_changes_one_place_and_has_tests() -> None:
    for mutant in MUTANTS:
        text = (ROOT / mutant.path).read_text()
        assert mutant.applied(text) != text, mutant
        assert all((ROOT / test).exists() for test in mutant.tests), mutant


def test_there_are_enough() -> None:
    assert len(MUTANTS) >= 40
