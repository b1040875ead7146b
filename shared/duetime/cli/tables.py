"""Text that is shown: rows in columns, and nothing that could steer a terminal."""

from __future__ import annotations

from collections.abc import Sequence

import click


def show_table(rows: Sequence[Sequence[str]]) -> None:
    """``rows`` on standard output, each column as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def printable(text: str) -> str:
    """Strangers had a hand in many texts."""
    return "".join(character if character.isprintable() else "?" for character in text)
