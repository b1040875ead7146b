"""Commands about when schedules occur: past, coming and possible occurrences."""

from __future__ import annotations

import json
from typing import Any

import click

from duetime.cli.options import Command
from duetime.cli.remote import Remote, item_path, json_option, on_server
from duetime.cli.tables import show_items
from duetime.cli.values import Duration, Instant, choice, options

_COLUMNS = {"LOCAL TIME": "localTime", "SCHEDULED AT": "scheduledAt", "DUE AT": "dueAt"}

_CLOCK_COLUMNS = {"CLOCKS SET FROM": "setFrom", "TO": "setTo", "AN OCCURRENCE IS": "effect"}
_PAST_COLUMNS = {
    "NUMBER": "number",
    "KIND": "kind",
    "STATE": "state",
    "SCHEDULED AT": "scheduledAt",
    "COUNT": "count",
    "ATTEMPTS": "attempts",
    "MESSAGE": "failure.message",
    "SERVICE CALL": "serviceCallId",
}
timing_options = options(
    click.option("--cron", multiple=True, metavar="EXPRESSION", help="Like '30 9 * * MON-FRI'. Can be repeated."),
    click.option("--every", type=Duration(), help="An interval of 1s or more, like 90m."),
    click.option("--rrule", multiple=True, metavar="RULE", help="A rule of RFC 5545. Can be repeated."),
    click.option("--time-zone", "--tz", metavar="ZONE", help="Like Europe/Berlin.  [default: UTC]"),
    click.option("--anchor", type=Instant(), help="The time from which intervals are counted."),
    click.option("--start-at", type=Instant(), help="No occurrence is before this time."),
    click.option("--end-at", type=Instant(), help="No occurrence is after this time."),
    click.option(
        "--exclude", multiple=True, metavar="DATE|EXPRESSION", help="No occurrence is on it. Can be repeated."
    ),
    click.option(
        "--dst",
        type=choice(["once", "skip", "both"]),
        help="When clocks are changed: what is done with times that do not exist or happen twice.  [default: once]",
    ),
    click.option("--calendar", metavar="NAME", help="The calendar that knows the business days."),
    click.option(
        "--day-off",
        type=choice(["skip", "next", "previous"]),
        help="What is done with occurrences on no business day of the calendar.  [default: skip]",
    ),
    click.option("--jitter", type=Duration(), help="Delay each occurrence by up to this."),
    click.option("--window", type=Duration(), help="Delay all occurrences by the same time within this."),
)
schedule_arguments = options(click.argument("namespace"), click.argument("schedule_id", metavar="ID"))


def schedule_path(namespace: str, schedule_id: str, rest: str = "") -> str:
    return item_path(namespace, "schedules", schedule_id, rest)


@click.command(cls=Command, short_help="Show past and coming occurrences.")
@schedule_arguments
@click.option("--from", "from_at", type=Instant(), help="Only what is scheduled then or later.")
@click.option(
    "--count", type=click.IntRange(1, 100), default=10, show_default=True, help="Past and coming ones to show."
)
@json_option
@on_server("listOccurrences")
def occurrences(*, remote: Remote, namespace: str, schedule_id: str, from_at: Any, count: int, as_json: bool) -> None:
    """Show the last occurrences of a schedule with what became of them, and the next ones."""
    from duetime_client import bodies

    query = bodies.conditions(**{"from": from_at}, count=count)
    response = remote.call("GET", schedule_path(namespace, schedule_id, "/occurrences"), query=query, has="past")
    if as_json:
        click.echo(response.content.decode())
        return
    found = json.loads(response.content)
    show_items(found["past"][::-1], _PAST_COLUMNS, as_json=False)
    show_items(found["coming"], _COLUMNS, as_json=False)


@click.command("next", cls=Command, short_help="Show when a schedule occurs next.")
@schedule_arguments
@click.option("--count", type=click.IntRange(1, 100), default=10, show_default=True, help="Occurrences to show.")
@json_option
@on_server("listOccurrences")
def next_ones(*, remote: Remote, namespace: str, schedule_id: str, count: int, as_json: bool) -> None:
    """Show when a schedule occurs next, in local time. `occurrences` shows the last ones, too."""
    response = remote.call(
        "GET", schedule_path(namespace, schedule_id, "/occurrences"), query={"count": count}, has="coming"
    )
    show_items(response.json()["coming"], _COLUMNS, as_json=as_json)


@click.command(cls=Command, short_help="Show when a schedule would occur.")
@timing_options
@click.option("--from", "from_at", type=Instant(), help="The first occurrence is then or later.  [default: now]")
@click.option("--count", type=click.IntRange(1, 100), default=10, show_default=True, help="Occurrences to show.")
@click.option("--id", "schedule_id", metavar="ID", help="Id of the schedule, which decides its delays.")
@json_option
@on_server("previewSchedule")
def preview(
    *, remote: Remote, from_at: Any, count: int, schedule_id: str | None, as_json: bool, **timing: Any
) -> None:
    """Show when a schedule would occur, in words and as times. Nothing is stored.

    Give --cron, --every or --rrule, or more of them.
    """
    from duetime_client import bodies

    timing = {name: value for name, value in timing.items() if value != ()}
    body = bodies.body(bodies.TIMING, **timing, from_at=from_at, count=count, schedule_id=schedule_id)
    response = remote.call("POST", "/v1/schedules/preview", body=body, has="items")
    if as_json:
        click.echo(response.content.decode())
        return
    found = json.loads(response.content)
    click.echo(found["description"])
    show_items(found["items"], _COLUMNS, as_json=False)
    if found["clockChanges"]:
        show_items(found["clockChanges"], _CLOCK_COLUMNS, as_json=False)
