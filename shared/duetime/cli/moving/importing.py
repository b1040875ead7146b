"""``duetime schedules import``: schedules from a crontab, or from EventBridge Scheduler."""

from __future__ import annotations

from collections.abc import Iterable
from typing import IO, Final

import click

from duetime.cli.moving.crontab import Crontab
from duetime.cli.moving.eventbridge import read_schedules
from duetime.cli.moving.found import Found
from duetime.cli.moving.plan import Action, Planner, Step, carry_out_all, told
from duetime.cli.options import Command
from duetime.cli.remote import Remote, json_option, on_server, path
from duetime.cli.tables import printable
from duetime.cli.values import choice

LEFT_OUT: Final = 3
"""Exit code: done, except for what could not be carried over."""
_AWS, _CRONTAB, _SYSTEM_CRONTAB = "aws", "crontab", "system-crontab"


@click.command("import", cls=Command, short_help="Create schedules from a crontab, or from AWS.")
@click.argument("namespace")
@click.argument("file", type=click.File(encoding="utf-8-sig"), default="-")
@click.option(
    "--format",
    "form",
    type=choice([_CRONTAB, _SYSTEM_CRONTAB, _AWS]),
    help="A user's crontab, one with a user in each line, or JSON of AWS.  [default: crontab, or aws if it is JSON]",
)
@click.option(
    "--callback-url",
    "receiver",
    metavar="TEMPLATE",
    help="Where commands and targets go, like https://runner.example/{id}.",
)
@click.option("--time-zone", "--tz", metavar="ZONE", help="Time zone of a crontab without CRON_TZ.  [default: UTC]")
@click.option("--dry-run", is_flag=True, help="Print what would be created, and what differs; create nothing.")
@json_option
@on_server("getNamespace", "getSchedule", "putSchedule")
def import_schedules(
    *,
    remote: Remote,
    namespace: str,
    file: IO[str],
    form: str | None,
    receiver: str | None,
    time_zone: str | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Create schedules from FILE or standard input: a crontab, or what `aws scheduler get-schedule` prints.

    A command is no URL. Lines that are a curl or wget command call its URL; all others need --callback-url, which
    gets the command as the payload. Without it a schedule of AWS keeps its target, if that is an SQS queue, an SNS
    topic, an EventBridge bus, a Lambda function or a state machine, and the server allows it. Standard error says
    line by line what cannot be carried over, and what will differ. What exists already is left as it is.

    Exit code 1: something failed. Exit code 3: done, except for lines that could not be carried over.

    \b
      crontab -l | duetime schedules import default --tz Europe/Berlin --dry-run
    """
    text = file.read()
    if form is None:
        form = _AWS if text.lstrip()[:1] in ("{", "[") else _CRONTAB
    remote.call("GET", path("/v1/namespaces/{}", namespace), has="name")
    found = _read(text, form, receiver, time_zone)
    if form != _AWS and any(each.schedule is not None and "timeZone" not in each.schedule for each in found):
        click.echo("times are read as UTC: give --tz if the machine of the crontab has another time zone", err=True)
    left_out = sum(each.is_schedule and each.schedule is None for each in found)
    steps, failed = _planned(remote, namespace, found)
    todo = [step for step in steps if step.action is Action.CREATE]
    for step in todo:
        click.echo(step.as_json() if as_json else str(step))
    refused = 0 if dry_run else carry_out_all(remote, todo)
    told = [
        f"{len(todo)} to create" if dry_run else f"{len(todo) - refused} created",
        f"{len(steps) - len(todo)} unchanged",
    ]
    click.echo(", ".join([*told, f"{failed + refused} failed", f"{left_out} left out"]), err=True)
    return 1 if failed or refused else LEFT_OUT if left_out else 0


def _read(text: str, form: str, receiver: str | None, time_zone: str | None) -> list[Found]:
    """Read ``text``. Raises ``click.UsageError``."""
    if form == _AWS:
        if time_zone is not None:
            raise click.UsageError("--time-zone is for crontabs: schedules of AWS have one")
        try:
            return list(read_schedules(text, url=receiver))
        except (ValueError, RecursionError) as error:
            raise click.UsageError(f"the file is not JSON: {error}") from None
    return list(Crontab(receiver, time_zone, has_user=form == _SYSTEM_CRONTAB).read(text))


def _planned(remote: Remote, namespace: str, found: Iterable[Found]) -> tuple[list[Step], int]:
    """Return what to do, and how many cannot be done. Print what differs, line by line."""
    from duetime_client import Conflict, InvalidRequest

    planner = Planner(remote)
    steps: dict[str, Step] = {}
    failed = 0
    for each in found:
        notes = list(each.notes)
        if each.schedule is not None:
            body = dict(each.schedule)
            schedule_id = body.pop("id")
            try:
                step = planner.schedule(namespace, schedule_id, body)
            except (Conflict, InvalidRequest) as error:
                failed, notes = failed + 1, [f"{schedule_id}: {told(error)}"]
            else:
                if schedule_id in steps:
                    failed, notes = failed + 1, [f"{schedule_id} is there twice: the first one counts"]
                elif step.action is Action.CHANGE:
                    changes = ", ".join(step.changes)
                    failed, notes = failed + 1, [f"{schedule_id} exists, and is another one ({changes}): it stays"]
                else:
                    steps[schedule_id] = step
        for note in notes:
            click.echo(f"line {each.line}: {printable(note)}", err=True)
    return list(steps.values()), failed
