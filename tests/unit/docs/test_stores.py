"""docs/stores.md, "How to add a store": each kind of store has all of it, and its level is told everywhere."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from duetime.cli.app import app
from duetime.stores.kinds import KINDS, StoreKind, SupportLevel

ROOT = Path(__file__).parents[3]
OVERVIEW = (ROOT / "docs" / "stores.md").read_text()
PAGES = sorted({kind.page for kind in KINDS})
SECTIONS = ["Run it", "Capacity", "Backup and restore", "What was run", "Known limits"]


def rows(section: str) -> list[str]:
    text = OVERVIEW.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return [line for line in text.splitlines() if line.startswith("| [")]


@pytest.mark.parametrize("section", ["Which one", "Support levels"])
def test_the_tables_have_a_row_for_each_kind_with_its_level_in_the_same_order(section: str) -> None:
    heads = [" | ".join(row.split(" | ")[:2]) for row in rows(section)]

    assert heads == [f"| [{kind.name}](stores/{kind.page}.md) | {kind.level}" for kind in KINDS]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_kind_is_in_the_tables_with_its_schemes_extra_and_what_it_ran_on(kind: StoreKind) -> None:
    (which,) = [row for row in rows("Which one") if row.startswith(f"| [{kind.name}]")]
    (level,) = [row for row in rows("Support levels") if row.startswith(f"| [{kind.name}]")]

    assert re.findall(r"`([a-z+]+)://", which) == list(kind.schemes)
    assert f"| `{kind.extra}` |" in which
    assert level.split(" | ")[2] == kind.ran_on


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.level is not SupportLevel.SUPPORTED], ids=str)
def test_a_page_begins_with_the_level_of_what_is_not_supported(kind: StoreKind) -> None:
    head = (ROOT / "docs" / "stores" / f"{kind.page}.md").read_text().partition("\n## ")[0]

    assert re.search(rf"\*\*{kind.level.label}\*\*", head, re.I)


def test_the_readme_and_the_help_tell_the_stores_of_each_level() -> None:
    readme = (ROOT / "README.md").read_text()
    shown = CliRunner().invoke(app, ["--help"]).output
    for level in SupportLevel:
        names = ", ".join(str(kind) for kind in KINDS if kind.level is level)

        assert re.search(rf"^\| {level.label}\b[^|]*\| {re.escape(names)} \|$", readme, re.M)
        assert f"{level.label.capitalize()}: {names}." in " ".join(shown.split())


@pytest.mark.parametrize("extra", sorted({kind.extra for kind in KINDS}))
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
    assert any(f"(stores/{page}.md)" in row for row in rows("Support levels"))


@pytest.mark.parametrize("page", sorted(set(PAGES) - {"sqlite", "dynamodb"}))
def test_a_page_says_how_to_run_the_suite_on_ones_own_server(page: str) -> None:
    text = (ROOT / "docs" / "stores" / f"{page}.md").read_text()

    assert re.search(r"DUETIME_TEST_[A-Z0-9]+_URL=", text.partition("## What was run")[2])


def test_every_page_is_linked() -> None:
    assert {path.stem for path in (ROOT / "docs" / "stores").iterdir()} == {*PAGES, "sql"}
