"""The list of ``make mutate`` fits the sources that it is about."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutation.mutants import MUTANTS, Mutant

ROOT = Path(__file__).parent.parent.parent.parent


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.path}: {mutant.harm}")
def test_a_mutant_changes_one_place_and_has_tests(mutant: Mutant) -> None:
    text = (ROOT / mutant.path).read_text()
    assert mutant.applied(text) != text
    assert all((ROOT / test).exists() for test in mutant.tests)


def test_there_are_enough() -> None:
    assert len(MUTANTS) >= 40
