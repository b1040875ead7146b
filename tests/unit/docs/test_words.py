"""What people read has one word for one thing: that of docs/glossary.md."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click
import pytest

from duetime.cli.app import app
from tests.support.processes import ROOT

PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(ROOT / "docs").glob("*.md"),
    *(ROOT / "docs" / "stores").glob("*.md"),
]
_CODE = re.compile(r"^```.*?^```$|`[^`]*`", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"/\*.*?\*/|^ *//.*?$", re.MULTILINE | re.DOTALL)
_STRING = re.compile(r'"[^"\n]* [^"\n]*"|`[^`\n]* [^`\n]*`')


def helps(command: click.Command, path: str) -> Iterator[tuple[str, str]]:
    """The texts of a command, of its options, and of the commands below it."""
    options = [option.help or "" for option in command.params if isinstance(option, click.Option)]
    yield path, " ".join([command.help or "", command.short_help or "", *options])
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            yield from helps(below, f"{path} {name}")


def texts() -> dict[str, str]:
    """By where it stands, everything that is watched."""
    pages = {str(page.relative_to(ROOT)): _CODE.sub("", page.read_text(encoding="utf-8")) for page in PAGES}
    console = {
        f"console/{script.name}": " ".join(_STRING.findall(_COMMENT.sub("", script.read_text(encoding="utf-8"))))
        for script in (ROOT / "shared" / "duetime" / "console").glob("*.js")
    }
    return pages | console | {f"{path} --help": _CODE.sub("", text) for path, text in helps(app, "duetime")}


TEXTS = texts()


@pytest.mark.parametrize(
    ("synonym", "word"),
    [
        (r"under way", "in flight"),
        (r"(?:un)?seal(?:s|ed|ing)?", "encrypt, decrypt"),
        (r"lanes?", "host queue, namespace queue"),
        (r"dispatchers?", "outbox relay"),
        (r"tall(?:y|ies)", "totals, checksum"),
        (r"gone on with|goes? on with", "resume, continue"),
        (r"what becomes of", "what happens to"),
        (r"whoever", "anyone who, or name the person"),
        (r"by variable only", "there is no option"),
    ],
)
def test_a_text_uses_the_words_of_the_glossary(synonym: str, word: str) -> None:
    found = [where for where, text in TEXTS.items() if re.search(rf"\b(?:{synonym})\b", text, re.IGNORECASE)]
    assert found == [], f"write: {word}"


def test_the_console_and_the_command_are_watched() -> None:
    assert "No service calls yet." in TEXTS["console/call-list.js"]
    assert "Cancel a service call" in TEXTS["duetime calls cancel --help"]
