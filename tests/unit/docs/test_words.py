"""The pages for users have one word for one thing: that of docs/glossary.md."""

from __future__ import annotations

import re

import pytest

from tests.support.processes import ROOT

PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(ROOT / "docs").glob("*.md"),
    *(ROOT / "docs" / "stores").glob("*.md"),
]
_CODE = re.compile(r"^```.*?^```$|`[^`]*`", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    ("synonym", "word"),
    [
        (r"under way", "in flight"),
        (r"(?:un)?seal(?:s|ed|ing)?", "encrypt, decrypt"),
        (r"lanes?", "host queue, namespace queue"),
        (r"dispatchers?", "outbox relay"),
        (r"tall(?:y|ies)", "totals, checksum"),
    ],
)
def test_a_page_uses_the_words_of_the_glossary(synonym: str, word: str) -> None:
    for page in PAGES:
        found = re.findall(rf"\b{synonym}\b", _CODE.sub("", page.read_text(encoding="utf-8")), re.IGNORECASE)
        assert found == [], f"{page.relative_to(ROOT)}: write {word}"
