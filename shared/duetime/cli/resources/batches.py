"""Commands that take many items from lines of JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import IO, TYPE_CHECKING

import click

from duetime.cli.values import json_lines, parsed

if TYPE_CHECKING:
    from duetime_client import ItemResult, RawJson


def make_of_lines(file: IO[str], make: Callable[[Iterable[RawJson]], Sequence[ItemResult]], *, as_json: bool) -> int:
    """Do ``make`` of the lines of ``file``. Returns the exit code."""
    lines = list(json_lines(file))
    return _show_results([number for number, _ in lines], make(raw for _, raw in lines), as_json=as_json)


def act_on_lines(file: IO[str], act: Callable[..., Sequence[ItemResult]], *, as_json: bool) -> int:
    """Do ``act`` to what the lines of ``file`` name. Returns the exit code."""
    numbers, ids, revisions = [], [], {}
    for number, raw in json_lines(file):
        item = parsed(raw)
        item_id = item.get("id") if isinstance(item, dict) else item
        if not isinstance(item_id, str):
            raise click.UsageError(f'line {number}: must be {{"id": "..."}} or a string')
        numbers.append(number)
        ids.append(item_id)
        if isinstance(item, dict) and item.get("revision") is not None:
            revisions[item_id] = item["revision"]
    return _show_results(numbers, act(ids, if_revisions=revisions), as_json=as_json)


def _show_results(numbers: Sequence[int], results: Sequence[ItemResult], *, as_json: bool) -> int:
    """Print what was done on standard output and what was not on standard error. Returns the exit code."""
    import json

    from duetime.cli.tables import printable

    for number, result in zip(numbers, results, strict=True):
        if as_json:
            error = None if result.error is None else str(result.error)
            click.echo(json.dumps({"line": number, "id": result.id, "status": result.status, "error": error}))
        elif result.is_ok:
            click.echo(printable(result.id or ""))
        if result.error is not None:
            named = "" if result.id is None else f"{printable(result.id)}: "
            click.echo(f"line {number}: {named}{printable(str(result.error))}", err=True)
    return int(any(not result.is_ok for result in results))
