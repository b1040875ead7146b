"""``docs/cli.md`` has every command."""

from __future__ import annotations

import re

import click

from duetime.cli.app import app
from tests.support.processes import ROOT


def test_the_table_has_every_command_and_those_of_every_group() -> None:
    rows = re.findall(r"^\| (`.+?) \| (.*) \|$", (ROOT / "docs/cli.md").read_text("utf-8"), re.MULTILINE)
    found = {
        name: re.findall(r"`([a-z-]+)`", rest) for names, rest in rows for name in re.findall(r"`([a-z]+)`", names)
    }

    assert found.keys() == app.commands.keys()
    for name, command in app.commands.items():
        if isinstance(command, click.Group):
            assert set(found[name]) == set(command.commands), name
