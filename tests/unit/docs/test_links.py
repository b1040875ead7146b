"""What pages, comments and docstrings name is there: files, headings, decisions, targets of make, benchmarks."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[3]
DECISIONS = ROOT / "docs" / "decisions"
PAGES = sorted(
    path for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md", "events/**/*.md") for path in ROOT.glob(pattern)
)
SOURCES = sorted(
    path
    for pattern in (
        "Makefile",
        "*.toml",
        "*.yaml",
        "functions/**/*.py",
        "shared/duetime/**/*.py",
        "scripts/*",
        "benchmarks/**/*.py",
        "tests/**/*.py",
    )
    for path in ROOT.glob(pattern)
    if path.is_file()
)
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_PATH = re.compile(r"\b((?:docs|tests|scripts|shared|functions|benchmarks|examples|events|stores)/[\w./-]+\.\w+)")
_DECISIONS = re.compile(r"\b[Dd]ecisions? ((?:\d{4}(?:, | and | to )?)+)")
_NUMBER = re.compile(r"\d{4}")


@cache
def anchors(page: Path) -> frozenset[str]:
    """What GitHub makes of the page's headings."""
    found: dict[str, int] = {}
    for heading in re.findall(r"^#{1,6} (.*?)\s*$", _FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        found[slug] = found.get(slug, 0) + 1
    return frozenset(f"{slug}-{at}" if at else slug for slug, times in found.items() for at in range(times))


def is_there(path: str) -> bool:
    return any((root / path).exists() for root in (ROOT, ROOT / "shared" / "duetime", ROOT / "docs"))


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for link in _LINK.findall(_FENCE.sub("", page.read_text(encoding="utf-8"))):
            if link.startswith(("https://", "http://")):
                continue
            name, _, anchor = link.partition("#")
            target = (page.parent / name).resolve() if name else page
            assert target.exists(), f"{page}: {link}"
            assert not anchor or anchor in anchors(target), f"{page}: {link}"


def test_what_a_page_names_is_there() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert [path for path in _PATH.findall(_LINK.sub("", text)) if not is_there(path)] == [], page
        named = {
            one or other
            for one, other in re.findall(r"^make ([a-z]+(?:-[a-z]+)*)|`make ([a-z]+(?:-[a-z]+)*)", text, re.MULTILINE)
        }
        assert named <= targets, page
        for module in re.findall(r"python -m ((?:benchmarks|scripts)(?:\.\w+)+)", text):
            assert (ROOT / f"{module.replace('.', '/')}.py").is_file(), f"{page}: {module}"


def test_what_comments_and_docstrings_name_is_there() -> None:
    for source in SOURCES:
        text = source.read_text(encoding="utf-8")
        assert [path for path in _PATH.findall(text) if path.endswith(".md") and not is_there(path)] == [], source


def test_decisions_that_are_named_exist() -> None:
    numbers = {path.name[:4] for path in DECISIONS.glob("[0-9]*.md")}
    for source in (*PAGES, *SOURCES):
        for group in _DECISIONS.findall(source.read_text(encoding="utf-8")):
            assert set(_NUMBER.findall(group)) <= numbers, f"{source.relative_to(ROOT)}: {group}"


def test_the_index_of_decisions_has_each_by_its_title() -> None:
    expected = []
    for path in sorted(DECISIONS.glob("[0-9]*.md")):
        heading = path.read_text(encoding="utf-8").partition("\n")[0]
        number, _, title = heading.removeprefix("# ").partition(" ")
        assert number == path.name[:4], heading
        expected.append(f"- [{number}]({path.name}) {title}")

    index = (DECISIONS / "README.md").read_text(encoding="utf-8")
    assert [line for line in index.splitlines() if line.startswith("- ")] == expected


def test_a_decision_is_a_page_at_most() -> None:
    longer = [
        path.name for path in DECISIONS.glob("[0-9]*.md") if len(path.read_text(encoding="utf-8").splitlines()) > 80
    ]
    assert longer == []
