"""What has to be done so that a server has the wanted namespaces and schedules: found out first, then done."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import click

from duetime.cli.remote import Remote, item_path, path
from duetime.cli.tables import printable, text_of
from duetime.domain.times import MAX_DURATION_SECONDS, format_duration, parse_duration_ms

if TYPE_CHECKING:
    from duetime_client import ApiError

_UNTOLD: Final = frozenset({"headers", "payload"})
"""Members whose values are not shown: they may be long, or secret."""
_OF_CALENDAR: Final = ("calendar", "dayOff")
_MONDAY_TO_FRIDAY: Final = ["MON", "TUE", "WED", "THU", "FRI"]
_ANY_MS: Final = int(MAX_DURATION_SECONDS * 1000)
_FIXED: Final = frozenset({"numShards", "dedicated"})


class Action(StrEnum):
    CREATE = "create"
    CHANGE = "change"
    DELETE = "delete"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True)
class Step:
    """What is done to a schedule, without ``schedule_id`` to a namespace, or to ``calendar``. ``wanted``: its body.

    ``changes``: by member of the API, what it is and what it will be.
    """

    action: Action
    namespace: str | None
    schedule_id: str | None = None
    wanted: Mapping[str, Any] = field(default_factory=dict, repr=False)
    changes: Mapping[str, tuple[Any, Any]] = field(default_factory=dict, repr=False)
    next_at: str | None = None
    calendar: str | None = None

    @property
    def name(self) -> str:
        if self.calendar is not None:
            return f"calendar {self.calendar}"
        name = f"namespace {self.namespace}" if self.schedule_id is None else f"{self.namespace}/{self.schedule_id}"
        return printable(name)

    def __str__(self) -> str:
        more = ", ".join(_change(member, *values) for member, values in self.changes.items())
        if self.next_at is not None:
            more = f"next {self.next_at}"
        return f"{self.action} {self.name}" + (f": {more}" if more else "")

    def as_json(self) -> str:
        changes = {
            name: None if name in _UNTOLD else {"from": old, "to": new} for name, (old, new) in self.changes.items()
        }
        names = {"namespace": self.namespace, "id": self.schedule_id, "calendar": self.calendar}
        members = {"step": self.action, **names, "changes": changes}
        return json.dumps(members | {"nextScheduledAt": self.next_at})


def _change(member: str, old: Any, new: Any) -> str:
    return member if member in _UNTOLD else f"{member} {_shown(old)} -> {_shown(new)}"


def _shown(value: Any) -> str:
    return "none" if value in (None, []) else text_of(value)


class Planner:
    """Asks a server what a change would lead to. The server stores nothing by it."""

    def __init__(self, remote: Remote) -> None:
        self._remote = remote
        self._new: set[str] = set()
        self._new_calendars: set[str] = set()

    def calendar(self, name: str, wanted: Mapping[str, Any]) -> Step:
        """Return what is done to a calendar. Members that the file does not have go back to their defaults."""
        from duetime_client import NotFound

        try:
            stored = self._remote.call("GET", path("/v1/calendars/{}", name), has="name").json()
        except NotFound:
            self._new_calendars.add(name)
            return Step(Action.CREATE, None, wanted=wanted, calendar=name)
        defaults: dict[str, list[str]] = {"weekdays": _MONDAY_TO_FRIDAY, "daysOff": [], "businessDays": []}
        would = {member: sorted(wanted.get(member) or value) for member, value in defaults.items()}
        changes = {
            member: (stored[member], value) for member, value in would.items() if sorted(stored[member]) != value
        }
        action = Action.CHANGE if changes else Action.UNCHANGED
        return Step(action, None, wanted=wanted, changes=changes, calendar=name)

    def namespace(self, name: str, settings: Mapping[str, Any]) -> Step:
        """Plan a namespace. Raises ``InvalidRequest`` for what never changes."""
        from duetime_client import InvalidRequest, NotFound

        try:
            stored = self._remote.call("GET", path("/v1/namespaces/{}", name), has="name").json()
        except NotFound:
            self._new.add(name)
            return Step(Action.CREATE, name, wanted=settings)
        told = {member: _as_told(member, value) for member, value in settings.items()}
        changes = {member: (stored.get(member), to) for member, to in told.items() if stored.get(member) != to}
        if fixed := sorted(_FIXED & changes.keys()):
            raise InvalidRequest("; ".join(f"{each}: is {stored[each]}, which no file changes" for each in fixed))
        return Step(Action.CHANGE if changes else Action.UNCHANGED, name, wanted=settings, changes=changes)

    def schedule(self, namespace: str, schedule_id: str, wanted: Mapping[str, Any]) -> Step:
        """Plan a schedule. Raises ``InvalidRequest``."""
        # The server does not know a calendar yet that is to be made.
        unknown = wanted.get("calendar") in self._new_calendars
        left_out = {member: wanted[member] for member in _OF_CALENDAR if unknown and member in wanted}
        known = {member: value for member, value in wanted.items() if member not in left_out}
        if namespace in self._new:
            next_at = self._preview(known)
            return Step(Action.CREATE, namespace, schedule_id, wanted, next_at=None if unknown else next_at)
        address = item_path(namespace, "schedules", schedule_id)
        answer = self._remote.client.request("PUT", address, query=[("dryRun", "true")], body=known)
        would = answer.json() | left_out
        if answer.status == 201:
            return Step(
                Action.CREATE, namespace, schedule_id, wanted, next_at=None if unknown else would["nextScheduledAt"]
            )
        changes = _differences(self._remote.call("GET", address).json(), would)
        return Step(Action.CHANGE if changes else Action.UNCHANGED, namespace, schedule_id, wanted, changes)

    def others(self, namespace: str, wanted: Iterable[str]) -> list[Step]:
        """Return the removal of every schedule of the namespace that is not ``wanted``."""
        if namespace in self._new:
            return []
        known = set(wanted)
        found = self._remote.items(path("/v1/namespaces/{}/schedules", namespace), {"limit": 100})
        return [Step(Action.DELETE, namespace, each["id"]) for each in found if each["id"] not in known]

    def _preview(self, wanted: Mapping[str, Any]) -> str | None:
        from duetime_client.bodies import TIMING

        members = {member for member, _ in TIMING.values()}
        body = {member: value for member, value in wanted.items() if member in members} | {"count": 1}
        items = self._remote.client.request("POST", "/v1/schedules/preview", body=body).json()["items"]
        return items[0]["scheduledAt"] if items else None


def _as_told(member: str, value: Any) -> Any:
    """Return a setting as the API answers it: a duration in whole units."""
    if member != "minScheduleInterval" or value is None:
        return value
    try:
        return format_duration(parse_duration_ms(value, max_ms=_ANY_MS))
    except ValueError:  # the API says what is wrong
        return value


def _differences(stored: Mapping[str, Any], would: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return what is stored and what will be (``would``), of each member that differs."""
    from duetime_client.bodies import SCHEDULE

    members = [member for member, _ in SCHEDULE.values() if member not in ("id", "paused")]
    return {each: (stored[each], would[each]) for each in (*members, "state") if stored[each] != would[each]}


def carry_out(remote: Remote, step: Step) -> None:
    """Do what a step says. Raises ``ApiError``."""
    if step.action is Action.UNCHANGED:
        return
    if step.calendar is not None:
        remote.client.request("PUT", path("/v1/calendars/{}", step.calendar), body=dict(step.wanted))
        return
    assert step.namespace is not None
    if step.schedule_id is None:
        remote.client.request("PUT", path("/v1/namespaces/{}", step.namespace), body=dict(step.wanted))
        return
    address = item_path(step.namespace, "schedules", step.schedule_id)
    if step.action is Action.DELETE:
        remote.client.request("DELETE", address)
    else:
        remote.client.request("PUT", address, body=dict(step.wanted))


def told(error: ApiError) -> str:
    """Return what is wrong, without what is of use for a support request alone."""
    faults = [f"{each.field}: {each.message}" if each.field else each.message for each in error.errors]
    return printable("; ".join(faults) or error.detail or str(error))


def carry_out_all(remote: Remote, steps: Iterable[Step]) -> int:
    """Do ``steps``, each for itself. Return how many failed; standard error says why."""
    from duetime_client import Conflict, InvalidRequest, NotFound, PreconditionFailed

    failed = 0
    for step in steps:
        try:
            carry_out(remote, step)
        except (Conflict, InvalidRequest, NotFound, PreconditionFailed) as error:
            failed += 1
            click.echo(f"{step.name}: {told(error)}", err=True)
    return failed
