"""Parses options and lines of input. The API validates the values; only their form is checked here."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import IO, TYPE_CHECKING, Any, TypeVar

import click

from duetime.cli.remote import CLEARED
from duetime.domain.targets import is_arn
from duetime.domain.times import parse_duration, parse_instant

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from duetime_client import RawJson

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

NONE = "none"
_MAX_STDIN_CHARACTERS = 2 * 1024 * 1024


def choice(values: Iterable[T]) -> click.Choice[T]:
    """Return the type of an option that is one of ``values``, in any case, as the API takes them."""
    return click.Choice(list(values), case_sensitive=False)


class Instant(click.ParamType["datetime"]):
    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        try:
            return parse_instant(value) if isinstance(value, str) else value
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Duration(click.ParamType["timedelta"]):
    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        from datetime import timedelta

        try:
            return timedelta(seconds=parse_duration(value)) if isinstance(value, str) else value
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Json(click.ParamType["RawJson"]):
    """JSON that is sent exactly as given."""

    name = "json"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from duetime_client import InvalidArgument, RawJson

        if not isinstance(value, str):
            return value
        try:
            return RawJson(value.strip())
        except InvalidArgument as error:
            self.fail(str(error).removeprefix("RawJson: "), param, ctx)


class OrNone(click.ParamType[Any]):
    """A value of another type, or "none" to clear a setting."""

    def __init__(self, kind: click.ParamType[Any]) -> None:
        self.name = kind.name
        self._kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == NONE:
            return CLEARED
        found = self._kind.convert(value, param, ctx)
        if isinstance(found, float) and not math.isfinite(found):
            self.fail("must be a number", param, ctx)
        return found


class Header(click.ParamType[tuple[str, str]]):
    name = "header"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        if not isinstance(value, str):
            return value  # type: ignore[no-any-return]
        name, colon, rest = value.partition(":")
        if not colon or not name.strip():
            self.fail("must be 'NAME: VALUE'", param, ctx)
        return name.strip(), rest.strip()


headers_option = click.option(
    "--header",
    "headers",
    type=Header(),
    multiple=True,
    callback=lambda _context, _parameter, value: dict(value),
    metavar="'NAME: VALUE'",
    help="A header of the request. Can be repeated.",
)
dry_run_option = click.option("--dry-run", is_flag=True, help="Count them; change nothing.")
tags_option = click.option("--tag", "tags", multiple=True, help="A tag. Can be repeated.")


def options(*made: Callable[[F], F]) -> Callable[[F], F]:
    """Combine several options, in this order."""

    def decorate(command: F) -> F:
        for option in reversed(made):
            command = option(command)
        return command

    return decorate


timer_filter_options = options(
    click.option("--reason", metavar="REASON", help="Reason of the last failure, like Timeout or Network."),
    click.option("--tag", help="With this tag."),
    click.option("--correlation-id", metavar="ID", help="With this correlation id."),
    click.option("--due-from", type=Instant(), help="Due at this RFC 3339 time or later."),
    click.option("--due-to", type=Instant(), help="Due before this time."),
    click.option("--failed-from", type=Instant(), help="Failed at this time or later."),
    click.option("--failed-to", type=Instant(), help="Failed before this time."),
)


def read_stdin(what: str) -> str:
    """Read standard input, which must be ``what``. Raises ``click.UsageError`` if it is empty or too long."""
    text = sys.stdin.read(_MAX_STDIN_CHARACTERS + 1)
    if not text.strip() or len(text) > _MAX_STDIN_CHARACTERS:
        raise click.UsageError(f"standard input must be {what}")
    return text


def json_lines(file: IO[str]) -> Iterator[tuple[int, RawJson]]:
    """Yield the non-empty lines of ``file`` as JSON, with their numbers. Raises ``click.UsageError``."""
    from duetime_client import InvalidArgument, RawJson

    for number, line in enumerate(file, start=1):
        if line.strip():
            try:
                yield number, RawJson(line.strip())
            except InvalidArgument as error:
                raise click.UsageError(f"line {number}: {str(error).removeprefix('RawJson: ')}") from None


def parsed(raw: RawJson) -> Any:
    """Decode ``raw``, where digits do not matter."""
    return json.loads(raw.text)


def aimed(given: dict[str, Any], name: str = "callback_url", *, target: str = "target") -> dict[str, Any]:
    """Return ``given`` with a ``target`` in the place of the URL ``name``, if that is an ARN."""
    url = given.get(name)
    if url is None or not is_arn(url):
        return given
    return {each: value for each, value in given.items() if each != name} | {target: {"arn": url}}


def cleared(names: Iterable[str], given: dict[str, Any]) -> dict[str, Any]:
    """Return the members that ``--clear`` names, as cleared. Raises ``UsageError`` for one that is given, too."""
    members = {name: name.replace("-", "_") for name in names}
    for name, member in members.items():
        if given.get(member) not in (None, ()):
            raise click.UsageError(f"--clear {name} cannot be combined with a new value of it")
    return dict.fromkeys(members.values(), CLEARED)
