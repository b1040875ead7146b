"""Prints tables, facts and JSON, without characters that could control a terminal."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from duetime_client import ChangedSchedules, MovedTimers

_MAX_CELL = 100
_MIN_CELL = 10
"""As long as a state."""
_MIN_TIME = len("2026-12-20T15:30Z")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")

Columns = Mapping[str, Any]
"""By heading: a member of an item (dots for nested ones), or a function that makes the cell."""


def show_items(items: Iterable[Any], columns: Columns, *, as_json: bool, limit: int | None = None) -> None:
    """Print lines of JSON as they come, or one table. ``limit``: the number of items at most."""
    rows = [list(columns)]
    for shown, item in enumerate(items):
        if shown == limit:
            click.echo(f"there are more than {limit}: use --limit to show more", err=True)
            break
        if as_json:
            click.echo(json.dumps(item))
        else:
            rows.append([_cell(member(item, column)) for column in columns.values()])
    if not as_json:
        show_table(rows)


def show_table(rows: Sequence[Sequence[str]]) -> None:
    """Print ``rows``. On a terminal the widest columns are cut until a row fits into a line, or says too little."""
    columns = list(zip(*rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    room = _terminal_width()
    # Identifiers are copied from the first column, so it is never cut; times only where nothing else is left to cut,
    # and then to the second or the minute.
    times = {at for at, column in enumerate(columns) if any(map(_TIME.fullmatch, column))}
    for candidates, least in ((set(range(1, len(widths))) - times, _MIN_CELL), (times - {0}, _MIN_TIME)):
        while room is not None and sum(widths) + 2 * (len(widths) - 1) > room:
            widest = max(candidates, key=lambda at: widths[at], default=0)
            if widths[widest] <= least or widest == 0:
                break
            widths[widest] -= 1
    for row in rows:
        cells = (_cut(cell, width).ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo("  ".join(cells).rstrip())


def show_item(content: bytes, *, as_json: bool) -> None:
    """Print one item: as JSON, or in lines all members that are not null."""
    if as_json:
        click.echo(content.decode())
    else:
        show_lines(flat(json.loads(content)))


def show_lines(lines: Mapping[str, object]) -> None:
    """Print facts, one per line; empty ones are left out."""
    known = {name: value for name, value in lines.items() if value not in (None, "", [], {})}
    width = max(map(len, known), default=0)
    for name, value in known.items():
        click.echo(f"{name:<{width}}  {text_of(value)}")


def show_moved(done: Sequence[ChangedSchedules | MovedTimers], *, is_rehearsal: bool) -> int:
    """Print what was done to each namespace, in all. Returns the exit code."""
    affected, skipped = sum(each.affected for each in done), sum(each.skipped for each in done)
    click.echo(f"{affected} {'would be ' if is_rehearsal else ''}moved, {skipped} skipped")
    return int(skipped > 0)


def flat(item: Mapping[str, Any]) -> dict[str, object]:
    """Turn members into facts: ``executeAt`` reads ``execute at``."""
    return {"".join(f" {each.lower()}" if each.isupper() else each for each in name): item[name] for name in item}


def member(item: Any, column: Any) -> object:
    """Return the member of ``item`` that a column names."""
    if not isinstance(column, str):
        return column(item)
    for name in column.split("."):
        item = None if item is None else item.get(name)
    return item


def text_of(value: object) -> str:
    """Format a value for people."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return printable(", ".join(value))
    return printable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def printable(text: str) -> str:
    """Replace control characters: texts may come from anyone."""
    return "".join(character if character.isprintable() else "?" for character in text)


def _cell(value: object) -> str:
    return "-" if value is None else _cut(text_of(value), _MAX_CELL)


def _cut(text: str, width: int) -> str:
    if len(text) <= width:
        return text
    if _TIME.fullmatch(text):
        return f"{text[:19] if width > _MIN_TIME + 2 else text[:16]}Z"
    return text[: width - 3] + "..."


def _terminal_width() -> int | None:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None
