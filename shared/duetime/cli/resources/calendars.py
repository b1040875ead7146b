"""Commands about calendars: ``duetime calendars``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from duetime.cli.options import Group
from duetime.cli.remote import Remote, if_revision_option, json_option, on_server, path
from duetime.cli.tables import show_item, show_items
from duetime.cli.values import choice, options
from duetime.domain.calendars import Weekday
from duetime.domain.namespaces import NAMESPACE_SECONDS

_COLUMNS = {
    "NAME": "name",
    "REVISION": "revision",
    "WEEKDAYS": lambda calendar: " ".join(calendar["weekdays"]),
    "DAYS OFF": lambda calendar: len(calendar["daysOff"]),
    "BUSINESS DAYS": lambda calendar: len(calendar["businessDays"]),
}
_put_options = options(
    click.option(
        "--weekday",
        "weekdays",
        type=choice(list(Weekday)),
        multiple=True,
        help="A weekday of business days. Can be repeated.  [default: MON to FRI]",
    ),
    click.option("--day-off", "days_off", multiple=True, metavar="DATE", help="Like 2026-12-25. Can be repeated."),
    click.option("--business-day", "business_days", multiple=True, metavar="DATE", help="Whatever its weekday is."),
    click.option("--no-recompute", is_flag=True, help="Leave pending occurrences as they are."),
)


@click.group(cls=Group, short_help="Set and show calendars, which know business days.")
def calendars() -> None:
    """Set and show calendars. Schedules that name one occur on its business days.

    \b
      duetime calendars put de --day-off 2026-12-25 --day-off 2027-01-01
      duetime calendars import-ics at holidays.ics --day-off 2026-12-24
      duetime schedules create default https://example.com/hook --cron '0 17 L * *' --calendar de --day-off previous
    """


@calendars.command(short_help="Create or replace a calendar.")
@click.argument("name")
@_put_options
@if_revision_option
@json_option
@on_server("putCalendar", "recomputeSchedules", "listNamespaces")
def put(
    *, remote: Remote, name: str, no_recompute: bool, if_revision: int | None, as_json: bool, **given: Sequence[str]
) -> int:
    """Create or replace the calendar NAME.

    When it has changed, the pending occurrences of all schedules are computed again, after ten seconds, when every
    process knows it. After an interruption, run `duetime schedules recompute`.
    """
    return _put(remote, name, given, no_recompute=no_recompute, if_revision=if_revision, as_json=as_json)


@calendars.command("import-ics", short_help="Make a calendar of an iCalendar file.")
@click.argument("name")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@_put_options
@json_option
@on_server("putCalendar", "recomputeSchedules", "listNamespaces")
def import_ics(
    *, remote: Remote, name: str, file: Path, no_recompute: bool, as_json: bool, **given: Sequence[str]
) -> int:
    """Create or replace the calendar NAME: the whole days of the events in FILE (.ics) are off.

    Events with a time of day are left out. One that recurs is refused: it must be listed day by day.
    """
    try:
        text = file.read_text(encoding="utf-8-sig")
    except ValueError as error:
        raise click.UsageError(f"{file}: {error}") from None
    return _put(remote, name, {**given, "ics": text}, no_recompute=no_recompute, if_revision=None, as_json=as_json)


@calendars.command()
@click.argument("name")
@json_option
@on_server("getCalendar")
def show(*, remote: Remote, name: str, as_json: bool) -> None:
    """Show a calendar."""
    show_item(remote.call("GET", _path(name), has="name").content, as_json=as_json)


@calendars.command("list")
@json_option
@on_server("listCalendars")
def list_calendars(*, remote: Remote, as_json: bool) -> None:
    """List all calendars."""
    show_items(remote.items("/v1/calendars"), _COLUMNS, as_json=as_json)


@calendars.command(short_help="Remove a calendar.")
@click.argument("name")
@click.option("--force", is_flag=True, help="Even if schedules name it: they wait until there is one again.")
@if_revision_option
@on_server("deleteCalendar", "listNamespaces", "listSchedules")
def delete(*, remote: Remote, name: str, force: bool, if_revision: int | None) -> int:
    """Remove the calendar NAME. Exit code 1: a schedule names it, so it stays."""
    for namespace in () if force else remote.namespaces(None):
        found = remote.items(path("/v1/namespaces/{}/schedules", namespace), {"calendar": name}, limit=1)
        for each in found:
            click.echo(f"schedule {namespace}/{each['id']} names it (--force removes it)", err=True)
            return 1
    remote.client.calendars.delete(name, if_revision=if_revision)
    click.echo(f"removed {name}", err=True)
    return 0


def _path(name: str) -> str:
    return path("/v1/calendars/{}", name)


def _put(
    remote: Remote,
    name: str,
    given: dict[str, Any],
    *,
    no_recompute: bool,
    if_revision: int | None,
    as_json: bool,
) -> int:
    """Put a calendar, and compute what is pending again when that has changed it. Returns the exit code."""
    from duetime_client import NotFound, bodies

    try:
        before = remote.call("GET", _path(name), has="name").json()["revision"]
    except NotFound:
        before = None
    body = bodies.body(bodies.CALENDAR, **{each: value or None for each, value in given.items()})
    response = remote.call("PUT", _path(name), body=body, if_revision=if_revision, has="name")
    show_item(response.content, as_json=as_json)
    if no_recompute or response.json()["revision"] == before:
        return 0
    return settle(remote)


def settle(remote: Remote) -> int:
    """Compute again what is pending, when every process knows the calendars as they are. Returns the exit code."""
    click.echo(f"in {NAMESPACE_SECONDS:.0f} s pending occurrences are computed again", err=True)
    time.sleep(NAMESPACE_SECONDS)
    done = [remote.client.schedules.recompute(name) for name in remote.namespaces(None)]
    affected, skipped = (sum(getattr(each, name) for each in done) for name in ("affected", "skipped"))
    click.echo(f"{affected} moved, {skipped} skipped", err=True)
    return int(skipped > 0)
