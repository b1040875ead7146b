"""docs/stores.md, "How to add a store": each scheme that can be opened has all of it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from duetime.stores.open import known_schemes

ROOT = Path(__file__).parents[3]
OVERVIEW = (ROOT / "docs" / "stores.md").read_text()
PAGES = sorted(set(re.findall(r"\]\(stores/(\w+)\.md\) \|", OVERVIEW)))
SECTIONS = ["Run it", "Capacity", "Backup and restore", "What was run", "Known limits"]
SCHEMES = sorted(known_schemes().items())


def rows(section: str) -> list[str]:
    text = OVERVIEW.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return [line for line in text.splitlines() if line.startswith("| [")]


@pytest.mark.parametrize(("scheme", "extra"), SCHEMES)
def test_a_scheme_is_in_the_table_with_its_extra_and_a_page(scheme: str, extra: str) -> None:
    (row,) = [row for row in rows("Which one") if f"`{scheme}://" in row]

    assert f"| `{extra}` |" in row
    assert re.search(r"\]\(stores/\w+\.md\) \|", row)


@pytest.mark.parametrize("extra", sorted({extra for _, extra in SCHEMES}))
def test_an_extra_can_be_installed_and_is_there_for_development(extra: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    makefile = (ROOT / "Makefile").read_text()
    developed = {
        word
        for line in re.findall(r"^(?:RUN|ALL)_EXTRAS := (.*)$", makefile, re.M)
        for word in re.findall(r"\w+", line)
    }

    assert extra in project["optional-dependencies"]
    assert extra in developed


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_all_sections_and_a_row_of_what_was_run(page: str) -> None:
    text = (ROOT / "docs" / "stores" / f"{page}.md").read_text()
    headings = re.findall(r"^## (.*)$", text, re.M)

    assert [heading for heading in headings if heading in SECTIONS] == SECTIONS
    assert any(f"(stores/{page}.md)" in row for row in rows("What was run"))


@pytest.mark.parametrize("page", sorted(set(PAGES) - {"sqlite", "dynamodb"}))
def test_a_page_says_how_to_run_the_suite_on_ones_own_server(page: str) -> None:
    text = (ROOT / "docs" / "stores" / f"{page}.md").read_text()

    assert re.search(r"DUETIME_TEST_[A-Z0-9]+_URL=", text.partition("## What was run")[2])


def test_every_page_is_linked() -> None:
    assert {path.stem for path in (ROOT / "docs" / "stores").iterdir()} == {*PAGES, "sql"}
