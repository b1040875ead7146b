"""``duetime apply``: calendars, namespaces and schedules as code, as one set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import IO, Any, Final

import click

from duetime.cli.moving.plan import Action, Planner, Step, carry_out_all, told
from duetime.cli.options import Command
from duetime.cli.remote import Remote, json_option, on_server
from duetime.cli.resources.calendars import settle
from duetime.cli.tables import printable

DIFFERS: Final = 3
"""Exit code of a dry run: something would be done."""
_CALENDARS, _NAMESPACES, _SCHEDULES = "calendars", "namespaces", "schedules"
_DONE: Final = {Action.CREATE: "created", Action.CHANGE: "changed", Action.DELETE: "deleted"}


@click.command(cls=Command, short_help="Make calendars, namespaces and schedules be as in a file.")
@click.option("-f", "--file", type=click.File(encoding="utf-8"), required=True, help='YAML or JSON; "-": from stdin.')
@click.option("--prune", is_flag=True, help="Delete schedules of the file's namespaces that are not in the file.")
@click.option("--dry-run", is_flag=True, help="Print what would be done; change nothing.")
@json_option
@on_server(
    *("getNamespace", "putNamespace", "listSchedules", "getSchedule", "putSchedule", "deleteSchedule"),
    *("previewSchedule", "getCalendar", "putCalendar", "recomputeSchedules", "listNamespaces"),
)
def apply(*, remote: Remote, file: IO[str], prune: bool, dry_run: bool, as_json: bool) -> int:
    """Make the calendars, namespaces and schedules of a server be as in FILE. Prints what is done.

    \b
      calendars:
        de:
          daysOff: [2026-12-25, 2027-01-01]
      namespaces:
        default:
          schedules:
            daily-report:
              cron: '30 9 * * MON-FRI'
              timeZone: Europe/Berlin
              callbackUrl: https://example.com/hook

    Members are those of the API. All is checked first; when something is wrong, nothing is changed. What the
    file does not name stays, unless --prune is given; calendars and namespaces are never deleted. When a calendar
    has changed, pending occurrences are computed again after ten seconds.

    Exit code 1: something failed. Exit code 3, with --dry-run: something would be done.
    """
    calendars, wanted = read_set(file.read())
    steps = _planned(remote, calendars, wanted, prune=prune)
    todo = [step for step in steps if step.action is not Action.UNCHANGED]
    for step in todo:
        click.echo(step.as_json() if as_json else str(step))
    counts = Counter(step.action for step in steps)
    same = f"{counts[Action.UNCHANGED]} unchanged"
    if dry_run:
        told = [f"{counts[action]} to {action}" for action in _DONE]
        click.echo(", ".join([*told, same]), err=True)
        return DIFFERS if todo else 0
    if failed := carry_out_all(remote, todo):
        click.echo(f"{failed} of {len(todo)} failed", err=True)
        return 1
    click.echo(", ".join([*(f"{counts[action]} {word}" for action, word in _DONE.items()), same]), err=True)
    has_changed = any(step.calendar is not None and step.action is Action.CHANGE for step in todo)
    return settle(remote) if has_changed else 0


def _planned(
    remote: Remote,
    calendars: Mapping[str, Mapping[str, Any]],
    wanted: Mapping[str, Mapping[str, Any]],
    *,
    prune: bool,
) -> list[Step]:
    """Return all steps, in the order in which they are done. Raises ``click.ClickException`` for what is wrong."""
    from duetime_client import Conflict, InvalidRequest, NotFound

    planner = Planner(remote)
    steps: list[Step] = []
    faults: list[str] = []
    for name, body in calendars.items():
        try:
            steps.append(planner.calendar(name, body))
        except InvalidRequest as error:
            faults.append(f"calendar {name}: {told(error)}")
    for name, settings in wanted.items():
        schedules = settings.get(_SCHEDULES)
        given = {member: value for member, value in settings.items() if member != _SCHEDULES}
        try:
            steps.append(planner.namespace(name, given))
        except (Conflict, InvalidRequest) as error:
            faults.append(f"namespace {name}: {told(error)}")
            continue
        if prune and schedules is not None:
            steps += planner.others(name, schedules)
        for schedule_id, body in (schedules or {}).items():
            try:
                steps.append(planner.schedule(name, schedule_id, body))
            except (Conflict, InvalidRequest, NotFound) as error:
                faults.append(f"{name}/{schedule_id}: {told(error)}")
    for fault in faults:
        click.echo(printable(fault), err=True)
    if faults:
        raise click.UsageError(f"the file has faults: {len(faults)}; nothing was changed")
    return steps


def read_set(text: str) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
    """Return the calendars in ``text``, and the settings of each namespace, its schedules among them.

    Raises ``click.UsageError``.
    """
    from duetime.cli.moving.yaml_file import read_yaml
    from duetime_client.bodies import CALENDAR, NAMESPACE, SCHEDULE

    try:
        found = read_yaml(text)
    except ValueError as error:
        raise click.UsageError(f"the file is not YAML: {printable(str(error))}") from None
    settings = {member for member, _ in NAMESPACE.values()} | {_SCHEDULES}
    members = {member for member, _ in SCHEDULE.values()} - {"id"}
    top = _mapping("the file", found, {_CALENDARS, _NAMESPACES})
    days = {member for member, _ in CALENDAR.values()}
    calendars = {
        name: _mapping(f"{_CALENDARS}.{name}", body or {}, days)
        for name, body in _mapping(_CALENDARS, top.get(_CALENDARS) or {}).items()
    }
    namespaces = _mapping(_NAMESPACES, top.get(_NAMESPACES, {} if _CALENDARS in top else None))
    for name, namespace in namespaces.items():
        namespaces[name] = _mapping(name, namespace or {}, settings)
        if _SCHEDULES in namespaces[name]:
            schedules = _mapping(f"{name}.{_SCHEDULES}", namespaces[name][_SCHEDULES] or {})
            namespaces[name][_SCHEDULES] = {
                each: _mapping(f"{name}.{_SCHEDULES}.{each}", body, members) for each, body in schedules.items()
            }
    return calendars, namespaces


def _mapping(name: str, value: Any, known: set[str] | None = None) -> dict[str, Any]:
    """Return a copy of ``value``. Raises ``click.UsageError`` unless it is a mapping, and has known keys alone."""
    if not isinstance(value, dict):
        raise click.UsageError(f"{printable(name)} must be a mapping")
    unknown = [key for key in value if not isinstance(key, str) or (known is not None and key not in known)]
    if unknown:
        why = "is not known" if isinstance(unknown[0], str) else "must be a string: quote it"
        raise click.UsageError(f"{printable(f'{name}: {unknown[0]}')} {why}")
    return dict(value)
