"""Reads crontabs: of a user (``crontab -l``), and of the system (``/etc/crontab``, ``/etc/cron.d``)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any, Final
from urllib.parse import urlsplit

from duetime.cli.moving.found import NO_URL, Found, id_of, target
from duetime.cli.moving.requests import NoRequest, request_of

_SETTING: Final = re.compile(r"""\s*["']?([A-Za-z_]\w*)["']?\s*=\s*(.*?)\s*""")
_ENTRY: Final = re.compile(r"(@\S+|\S+(?:\s+\S+){4})\s+(.+)")
_WITH_USER: Final = re.compile(r"(\S+)\s+(.+)")
_PERCENT: Final = re.compile(r"(?<!\\)%")
_SETTINGS: Final = {
    "MAILTO": "failures are not mailed: they are events (docs/events.md)",
    "TZ": "TZ is the time zone of commands, not of their times: give --tz, or CRON_TZ in the file",
    "RANDOM_DELAY": "RANDOM_DELAY is not carried over: `duetime schedules update --jitter` does the same",
}


@dataclass(frozen=True, slots=True)
class Crontab:
    """How a crontab is read. ``url``: where commands go that call none themselves. ``has_user``: before each command
    stands who runs it."""

    url: str | None
    time_zone: str | None
    has_user: bool = False

    def read(self, text: str) -> Iterator[Found]:
        """Yield what stands in each line that says something."""
        reader = self
        for number, line in enumerate(text.splitlines(), start=1):
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            setting = _SETTING.fullmatch(line)
            if setting is None:
                yield reader._entry(number, line.strip())
            elif setting[1] == "CRON_TZ":
                reader = replace(reader, time_zone=setting[2].strip("\"'") or self.time_zone)
            else:
                note = _SETTINGS.get(setting[1], f"{setting[1]} is not carried over: no command is run")
                yield Found(number, notes=(note,), is_schedule=False)

    def _entry(self, number: int, line: str) -> Found:
        entry = _ENTRY.fullmatch(line)
        if entry is None:
            return Found(number, notes=("is no line of a crontab",))
        times, command = " ".join(entry[1].split()), entry[2]
        if times.lower() == "@reboot":
            return Found(number, notes=("@reboot is no time",))
        given: dict[str, Any] = {}
        if self.has_user:
            user = _WITH_USER.fullmatch(command)
            if user is None:
                return Found(number, notes=("has no command after the user",))
            given, command = {"user": user[1]}, user[2]
        command, *stdin = _PERCENT.split(command, maxsplit=1)
        given["command"] = command.replace("\\%", "%").strip()
        if stdin:
            given["stdin"] = _PERCENT.sub("\n", stdin[0]).replace("\\%", "%")
        return self._schedule(number, times, given)

    def _schedule(self, number: int, times: str, given: dict[str, Any]) -> Found:
        # As cron does: what it was not there for is not made up.
        schedule: dict[str, Any] = {"cron": times, "misfire": "skip"}
        if self.time_zone is not None:
            schedule["timeZone"] = self.time_zone
        try:
            if "stdin" in given:
                raise NoRequest("has a % in it: what follows is no part of a request")
            request, notes = request_of(given["command"])
            name = PurePosixPath(urlsplit(request["callbackUrl"]).path).name or "call"
            schedule |= request | {"id": id_of(name, times, given)}
        except NoRequest as error:
            if self.url is None:
                return Found(number, notes=(f"{error}: {NO_URL}",))
            schedule["id"] = id_of(PurePosixPath(given["command"].split()[0]).name, times, given)
            schedule |= {"callbackUrl": target(self.url, schedule["id"]), "payload": given}
            notes = ["the command is the payload: who receives the callback runs it"]
        return Found(number, schedule, tuple(notes))
