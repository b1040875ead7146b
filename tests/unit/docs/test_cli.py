"""Commands in the docs: ``docs/cli.md`` has all of them, and no page has an option that there is not."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from duetime.cli.app import app
from tests.support.processes import ROOT

PAGES = [ROOT / "README.md", ROOT / "clients/python/README.md", *sorted(ROOT.glob("docs/**/*.md"))]
_COMMAND = re.compile(r"(?:^|[\s`($])(?:\.venv/bin/)?duetime ([a-z][^`|>#)\n]*)", re.MULTILINE)
_CODE = re.compile(r"^```.*?\n(.*?)^```|^ {4}(.*)|(`[^`\n]+`)", re.MULTILINE | re.DOTALL)


def test_the_table_has_every_command_and_those_of_every_group() -> None:
    rows = re.findall(r"^\| (`.+?) \| (.*) \|$", (ROOT / "docs/cli.md").read_text("utf-8"), re.MULTILINE)
    found = {
        name: re.findall(r"`([a-z-]+)`", rest) for names, rest in rows for name in re.findall(r"`([a-z]+)`", names)
    }

    assert found.keys() == app.commands.keys()
    for name, command in app.commands.items():
        if isinstance(command, click.Group):
            assert set(found[name]) == set(command.commands), name


def commands(text: str) -> list[list[str]]:
    """The words after ``duetime`` of every command in the code of a page."""
    code = "\n".join("".join(found) for found in _CODE.findall(text)).replace("\\\n", " ")
    return [re.findall(r"'[^']*'|\S+", line) for line in _COMMAND.findall(code)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_and_options_in_the_docs_are_there(page: Path) -> None:
    for words in commands(page.read_text("utf-8")):
        command: click.Command = app
        for word in words:
            if isinstance(command, click.Group):
                assert word in command.commands, words
                command = command.commands[word]
            elif word.startswith("--"):
                known = {
                    name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)
                }
                assert word.partition("=")[0] in known | {"--help"}, words
