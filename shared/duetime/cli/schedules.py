"""Commands about schedules: ``duetime schedules``."""

from __future__ import annotations

import json
from typing import Any

import click

from duetime.cli.remote import Remote, json_option, on_server
from duetime.cli.tables import show_items
from duetime.cli.values import Duration, Instant, options

_COLUMNS = {"LOCAL TIME": "localTime", "SCHEDULED AT": "scheduledAt", "DUE AT": "dueAt"}

_timing_options = options(
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
        type=click.Choice(["once", "skip", "both"], case_sensitive=False),
        help="When clocks are changed: what is done with times that do not exist or happen twice.  [default: once]",
    ),
    click.option("--jitter", type=Duration(), help="Delay each occurrence by up to this."),
    click.option("--window", type=Duration(), help="Delay all occurrences by the same time within this."),
)


@click.group(short_help="Preview schedules.")
def schedules() -> None:
    """Preview schedules: cron expressions, intervals and rules, in a time zone.

    \b
      duetime schedules preview --cron '30 9 * * MON-FRI' --tz Europe/Berlin
      duetime schedules preview --cron 'cron(0 18 ? * MON-FRI *)' --count 3
      duetime schedules preview --rrule 'FREQ=MONTHLY;BYDAY=-1FR;BYHOUR=17' --json
    """


@schedules.command(short_help="Show when a schedule would occur.")
@_timing_options
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

    timing = {name: value or None for name, value in timing.items()}
    body = bodies.body(bodies.TIMING, **timing, from_at=from_at, count=count, schedule_id=schedule_id)
    response = remote.call("POST", "/v1/schedules/preview", body=body, has="items")
    if as_json:
        click.echo(response.content.decode())
        return
    found = json.loads(response.content)
    click.echo(found["description"])
    show_items(found["items"], _COLUMNS, as_json=False)
