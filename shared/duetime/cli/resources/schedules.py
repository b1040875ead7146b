"""Commands about schedules: ``duetime schedules``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, TYPE_CHECKING, Any

import click

from duetime.cli.moving.importing import import_schedules
from duetime.cli.options import Group
from duetime.cli.remote import (
    Remote,
    if_revision_option,
    json_option,
    limit_option,
    on_server,
    path,
)
from duetime.cli.resources.answers import add_answers
from duetime.cli.resources.schedule_occurrences import (
    next_ones,
    occurrences,
    preview,
    schedule_arguments,
    schedule_path,
    timing_options,
)
from duetime.cli.resources.timers import TIMER_CLEARABLE, content_options, escalate_option
from duetime.cli.tables import show_item, show_items, show_moved
from duetime.cli.values import Instant, Json, aimed, choice, cleared, dry_run_option, options
from duetime.domain.times import format_instant

if TYPE_CHECKING:
    from duetime_client import ChangedSchedules

_LIST_COLUMNS = {
    "ID": "id",
    "STATE": "state",
    "WHEN": "description",
    "NEXT": "nextScheduledAt",
    "FIRINGS": "firings",
    "LAST": "firedAt",
    "FAILURE": "failure.message",
}
_policy_options = options(
    click.option(
        "--misfire",
        type=choice(["all", "latest", "skip"]),
        help="What is done with occurrences that were missed, by an outage or a pause.  [default: all]",
    ),
    click.option("--catch-up", metavar="DURATION", help="With --misfire all: how old they may be.  [default: 1h]"),
    click.option(
        "--overlap",
        type=choice(["allow", "skip", "bufferOne"]),
        help="What is done while an earlier occurrence is retried or in flight.  [default: allow]",
    ),
    click.option("--max-firings", type=click.IntRange(1), help="End the schedule after so many."),
    click.option("--pause-after", type=click.IntRange(1, 1000), help="Pause it after so many failures in a row."),
)


def _json_of(context: click.Context, parameter: click.Parameter, file: IO[str] | None) -> object:
    if file is None:
        return None
    with file:
        return Json().convert(file.read(), parameter, context)


_call_option = click.option(
    "--service-call",
    type=click.File(),
    callback=_json_of,
    metavar="FILE",
    help="Submit the service call that this JSON file describes, in place of a callback. -: standard input.",
)
_paused_option = click.option("--paused", is_flag=True, default=None, help="Fire nothing until it is resumed.")
_CLEARABLE = (
    *("cron", "every", "rrule", "time-zone", "anchor", "start-at", "end-at", "exclude", "dst", "jitter", "window"),
    *("calendar", "day-off"),
    *("misfire", "catch-up", "overlap", "max-firings", "pause-after"),
    *TIMER_CLEARABLE,
)
_filter_options = options(
    click.option("--tag", help="With this tag."),
    click.option("--due-from", type=Instant(), help="Next due at this time or later."),
    click.option("--due-to", type=Instant(), help="Next due before this time."),
)


@click.group(cls=Group, short_help="Create, list, pause, trigger and preview schedules.")
def schedules() -> None:
    """Create, list, pause, trigger and preview schedules: cron expressions, intervals and rules, in a time zone.

    \b
      duetime schedules create default https://example.com/hook --cron '30 9 * * MON-FRI' --tz Europe/Berlin
      duetime schedules preview --cron '30 9 * * MON-FRI' --tz Europe/Berlin
      duetime schedules preview --cron 'cron(0 18 ? * MON-FRI *)' --count 3
      duetime schedules preview --rrule 'FREQ=MONTHLY;BYDAY=-1FR;BYHOUR=17' --json
    """


def _body(given: dict[str, Any]) -> dict[str, Any]:
    """Return what options give of a schedule: those of its times by their types, the others as they are."""
    from duetime_client import bodies

    given = aimed(given)
    timing = {name: value for name, value in given.items() if name in bodies.TIMING and value != ()}
    return bodies.body(bodies.TIMING, **timing) | {
        name: value for name, value in given.items() if name not in bodies.TIMING
    }


@schedules.command(short_help="Create a schedule.")
@click.argument("namespace")
@click.argument("callback_url", metavar="[URL]", default=None, required=False)
@click.option("--id", "new_id", metavar="ID", help="Id, unique in the namespace.  [default: a new one]")
@_call_option
@timing_options
@_policy_options
@_paused_option
@content_options
@escalate_option
@json_option
@on_server("createSchedule")
def create(*, remote: Remote, namespace: str, new_id: str | None, as_json: bool, **given: Any) -> None:
    """Create a schedule that calls URL, or submits a service call. Prints its id.

    The ARN of a target on AWS may be given in the place of URL.

    Give --cron, --every or --rrule, or more of them. `duetime schedules preview` shows when it would occur.
    """
    from duetime_client import bodies

    body = _body(given) | {"id": bodies.new_id() if new_id is None else new_id}
    response = remote.call("POST", path("/v1/namespaces/{}/schedules", namespace), body=body)
    click.echo(response.content.decode() if as_json else response.json()["id"])


@schedules.command(short_help="Create or replace a schedule.")
@schedule_arguments
@click.argument("callback_url", metavar="[URL]", default=None, required=False)
@_call_option
@timing_options
@_policy_options
@_paused_option
@content_options
@escalate_option
@click.option("--dry-run", is_flag=True, help="Show what would be stored; store nothing.")
@if_revision_option
@json_option
@on_server("putSchedule")
def put(
    *,
    remote: Remote,
    namespace: str,
    schedule_id: str,
    dry_run: bool,
    if_revision: int | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Create or replace the schedule ID, whose history stays. The options are those of `create`."""
    query = {"dry_run": dry_run or None}
    response = remote.call(
        "PUT", schedule_path(namespace, schedule_id), query=query, body=_body(given), if_revision=if_revision
    )
    show_item(response.content, as_json=as_json)


@schedules.command(short_help="Change a schedule.")
@schedule_arguments
@click.option("--callback-url", metavar="URL", help="New callback URL, or ARN of a target.")
@_call_option
@timing_options
@_policy_options
@content_options
@click.option(
    "--clear",
    type=choice(_CLEARABLE),
    multiple=True,
    help="Value to clear. Can be repeated.",
)
@if_revision_option
@json_option
@on_server("patchSchedule")
def update(
    *,
    remote: Remote,
    namespace: str,
    schedule_id: str,
    clear: Sequence[str],
    if_revision: int | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Change the given values of a schedule; keep the rest. With other times it fires next at the first after now."""
    body = _body(given) | cleared(clear, given)
    response = remote.call("PATCH", schedule_path(namespace, schedule_id), body=body, if_revision=if_revision)
    show_item(response.content, as_json=as_json)


@schedules.command()
@schedule_arguments
@json_option
@on_server("getSchedule")
def show(*, remote: Remote, namespace: str, schedule_id: str, as_json: bool) -> None:
    """Show a schedule."""
    show_item(remote.call("GET", schedule_path(namespace, schedule_id)).content, as_json=as_json)


@schedules.command("list", short_help="List the schedules of a namespace.")
@click.argument("namespace")
@click.option(
    "--state",
    type=choice(["Active", "Paused", "Ended", "Unreadable"]),
    help="In this state.",
)
@_filter_options
@click.option("--calendar", metavar="NAME", help="With this calendar.")
@limit_option
@json_option
@on_server("listSchedules")
def list_schedules(*, remote: Remote, namespace: str, limit: int, as_json: bool, **filters: Any) -> None:
    """List the schedules of NAMESPACE that match all filters, by shard and id, with their next occurrence."""
    found = remote.items(path("/v1/namespaces/{}/schedules", namespace), filters, limit=limit)
    show_items(found, _LIST_COLUMNS, as_json=as_json, limit=limit)


@schedules.command(short_help="Remove a schedule.")
@schedule_arguments
@if_revision_option
@on_server("deleteSchedule")
def delete(*, remote: Remote, namespace: str, schedule_id: str, if_revision: int | None) -> None:
    """Remove a schedule and its history. An occurrence that is being retried, or in flight, goes on."""
    remote.call("DELETE", schedule_path(namespace, schedule_id), if_revision=if_revision)
    click.echo(f"removed {schedule_id}", err=True)


@schedules.command(short_help="Pause a schedule.")
@schedule_arguments
@click.option("--reason", help="Why, for people (at most 255 characters).")
@if_revision_option
@json_option
@on_server("pauseSchedule")
def pause(
    *, remote: Remote, namespace: str, schedule_id: str, reason: str | None, if_revision: int | None, as_json: bool
) -> None:
    """Let nothing of a schedule fire until it is resumed."""
    address = schedule_path(namespace, schedule_id, "/pause")
    response = remote.call("POST", address, body={"reason": reason}, if_revision=if_revision)
    show_item(response.content, as_json=as_json)


@schedules.command(short_help="Resume a paused schedule.")
@schedule_arguments
@if_revision_option
@json_option
@on_server("resumeSchedule")
def resume(*, remote: Remote, namespace: str, schedule_id: str, if_revision: int | None, as_json: bool) -> None:
    """Let a schedule fire again. What came due meanwhile is missed, and fires as --misfire says."""
    response = remote.call("POST", schedule_path(namespace, schedule_id, "/resume"), if_revision=if_revision)
    show_item(response.content, as_json=as_json)


@schedules.command("pause-many", short_help="Pause schedules by filter.")
@click.argument("namespace")
@click.option("--reason", help="Why, for people (at most 255 characters).")
@_filter_options
@dry_run_option
@on_server("pauseSchedules")
def pause_many(*, remote: Remote, namespace: str, dry_run: bool, **given: Any) -> int:
    """Pause the active schedules of NAMESPACE that match all filters: without filters, all of them.

    After an interruption, run it again for the rest. Exit code 1: some were changed by others meanwhile.
    """
    return _show_changed(remote.client.schedules.pause_many(namespace, **given, dry_run=dry_run), "paused", dry_run)


@schedules.command("resume-many", short_help="Resume schedules by filter.")
@click.argument("namespace")
@_filter_options
@dry_run_option
@on_server("resumeSchedules")
def resume_many(*, remote: Remote, namespace: str, dry_run: bool, **given: Any) -> int:
    """Resume the paused schedules of NAMESPACE that match all filters, as `pause-many` pauses them."""
    return _show_changed(remote.client.schedules.resume_many(namespace, **given, dry_run=dry_run), "resumed", dry_run)


@schedules.command(short_help="Compute again when schedules occur next.")
@click.argument("namespace", required=False)
@dry_run_option
@on_server("recomputeSchedules", "listNamespaces")
def recompute(*, remote: Remote, namespace: str | None, dry_run: bool) -> int:
    """Compute again when the schedules of NAMESPACE, or of all, occur next: for a new release of tzdata, or another
    calendar.

    Those whose next time has not changed are left alone. After an interruption, run it again.
    """
    schedules = remote.client.schedules
    done = [schedules.recompute(name, dry_run=dry_run) for name in remote.namespaces(namespace)]
    return show_moved(done, is_rehearsal=dry_run)


def _show_changed(done: ChangedSchedules, word: str, is_rehearsal: bool) -> int:
    """Print what was done. Returns the exit code."""
    click.echo(f"{done.affected} {'would be ' if is_rehearsal else ''}{word}, {done.skipped} skipped")
    return int(done.skipped > 0)


@schedules.command(short_help="Fire a schedule now.")
@schedule_arguments
@json_option
@on_server("triggerSchedule")
def trigger(*, remote: Remote, namespace: str, schedule_id: str, as_json: bool) -> None:
    """Fire a schedule now, beside its occurrences, which stay as they are."""
    show_item(remote.call("POST", schedule_path(namespace, schedule_id, "/trigger")).content, as_json=as_json)


@schedules.command(short_help="Send occurrences of the past once more, or late.")
@schedule_arguments
@click.option("--from", "from_at", type=Instant(), required=True, help="The first occurrence is then or later.")
@click.option("--to", "to_at", type=Instant(), help="The last occurrence is before this time.  [default: now]")
@click.option("--rate-limit", type=click.FloatRange(0.01, 1000), help="How many become due per second.  [default: 1]")
@dry_run_option
@on_server("backfillSchedule")
def backfill(*, remote: Remote, namespace: str, schedule_id: str, dry_run: bool, **given: Any) -> None:
    """Send the occurrences of a schedule from --from to --to once more, or late, beside what it does.

    They have the webhook-id that they had. --dry-run shows how many there are. `cancel-backfill` removes those that
    are still to be sent, also after an interruption.
    """
    done = remote.client.schedules.backfill(namespace, schedule_id, dry_run=dry_run, **given)
    word = "would be sent" if dry_run else "to be sent"
    until = "" if done.last_due_at is None else f", the last at {format_instant(done.last_due_at)}"
    click.echo(f"{done.created} {word}, {done.skipped} are to be sent already{until}")


@schedules.command("cancel-backfill", short_help="Cancel what backfills are still to send.")
@schedule_arguments
@dry_run_option
@on_server("cancelBackfill")
def cancel_backfill(*, remote: Remote, namespace: str, schedule_id: str, dry_run: bool) -> int:
    """Remove what the backfills of a schedule are still to send. Exit code 1: some were in flight."""
    done = remote.client.schedules.cancel_backfill(namespace, schedule_id, dry_run=dry_run)
    click.echo(f"{done.cancelled} {'would be ' if dry_run else ''}cancelled, {done.skipped} skipped")
    return int(done.skipped > 0)


for each in (occurrences, next_ones, preview, import_schedules):
    schedules.add_command(each)
add_answers(
    schedules,
    "schedules",
    "answerOccurrence",
    schedule_arguments,
    click.option("--scheduled-at", type=Instant(), required=True, help="The scheduledAt of its callback."),
)
