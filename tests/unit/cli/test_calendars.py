"""``duetime calendars``, and calendars in ``duetime apply``."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import pytest

from duetime.api.calendars.ics import days_of
from tests.support.commands import Cli

HOOK = "https://receiver.test/hook"
ICS = """BEGIN:VCALENDAR\r
BEGIN:VEVENT\r
SUMMARY:Christmas,\r
  and the day after\r
DTSTART;VALUE=DATE:20261225\r
DTEND;VALUE=DATE:20261227\r
END:VEVENT\r
BEGIN:VEVENT\r
DTSTART:20261230T090000Z\r
END:VEVENT\r
BEGIN:VEVENT\r
DTSTART;VALUE=DATE:20270101\r
END:VEVENT\r
BEGIN:VEVENT\r
STATUS:CANCELLED\r
DTSTART;VALUE=DATE:20270102\r
END:VEVENT\r
END:VCALENDAR\r
"""
FILE = """
calendars:
  de:
    daysOff: [2070-12-31]
namespaces:
  default:
    minScheduleInterval: 60s
    schedules:
      s1: {cron: 'cron(0 17 31 12 ? 2070)', calendar: de, dayOff: previous, callbackUrl: https://receiver.test/hook}
"""


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("duetime.cli.resources.calendars.time.sleep", lambda _: None)


def test_a_calendar_lives_by_commands(store: object, cli: Cli) -> None:
    cli("namespaces", "create", "default")
    cli("calendars", "put", "de")
    schedule = ("schedules", "create", "default", HOOK, "--id", "s1", "--cron", "cron(0 17 31 12 ? 2070)")
    cli(*schedule, "--calendar", "de", "--day-off", "previous")
    shown, told = cli("calendars", "put", "de", "--day-off", "2070-12-31", "--business-day", "2070-12-27", "--json")
    assert json.loads(shown)["revision"] == 2
    assert "1 moved" in told
    made = json.loads(cli("schedules", "show", "default", "s1", "--json")[0])
    assert made["nextScheduledAt"] == "2070-12-30T17:00:00.000Z"
    same = cli("calendars", "put", "de", "--day-off", "2070-12-31", "--business-day", "2070-12-27")
    assert "computed again" not in same[1]
    assert "de" in cli("calendars", "list")[0]
    assert json.loads(cli("calendars", "show", "de", "--json")[0])["daysOff"] == ["2070-12-31"]
    assert "schedule default/s1 names it" in cli("calendars", "delete", "de", code=1)[1]
    cli("calendars", "delete", "de", "--force")
    assert cli("calendars", "list", "--json")[0] == ""


def test_an_icalendar_file_becomes_days_off(store: object, cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "holidays.ics"
    file.write_text(ICS, encoding="utf-8", newline="")
    command = ("calendars", "import-ics", "de", str(file), "--no-recompute", "--json")
    assert json.loads(cli(*command)[0])["daysOff"] == ["2026-12-25", "2026-12-26", "2027-01-01"]
    more = json.loads(cli(*command, "--day-off", "2026-12-24")[0])
    assert more["daysOff"] == ["2026-12-24", "2026-12-25", "2026-12-26", "2027-01-01"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no iCalendar file"),
        ("name,day\n", "no iCalendar file"),
        ("BEGIN:VCALENDAR\nBEGIN:VEVENT\nSUMMARY:A\nDTSTART:20261225\nRRULE:FREQ=YEARLY\nEND:VEVENT\n", "'A' recurs"),
        ("BEGIN:VCALENDAR\nBEGIN:VEVENT\nSUMMARY:A\nDTSTART:20261399\nEND:VEVENT\n", "cannot be read"),
        ("BEGIN:VCALENDAR\nBEGIN:VEVENT\nDTSTART:20000101\nDTEND:20261225\nEND:VEVENT\n", "more than 1000 days"),
    ],
)
def test_a_file_that_cannot_be_taken_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        days_of(text)


def test_an_event_without_an_end_is_one_day() -> None:
    assert days_of("BEGIN:VCALENDAR\nBEGIN:VEVENT\nDTSTART;VALUE=DATE:20261225\nEND:VEVENT\n") == [date(2026, 12, 25)]


def test_apply_makes_calendars_first_and_recomputes_after_a_change(store: object, cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "schedules.yaml"
    file.write_text(FILE, encoding="utf-8")
    out, _ = cli("apply", "-f", str(file))
    assert [line.split(":")[0] for line in out.splitlines()] == [
        *("create calendar de", "create namespace default", "create default/s1"),
    ]
    assert cli("apply", "-f", str(file))[0] == ""
    file.write_text(FILE.replace("2070-12-31", "2070-12-30"), encoding="utf-8")
    out, err = cli("apply", "-f", str(file))
    assert out.startswith("change calendar de: daysOff")
    assert "1 moved" in err
    made = json.loads(cli("schedules", "show", "default", "s1", "--json")[0])
    assert made["nextScheduledAt"] == "2070-12-31T17:00:00.000Z"


def test_the_shortest_interval_is_an_option(store: object, cli: Cli) -> None:
    cli("namespaces", "create", "default", "--min-schedule-interval", "1m")
    often = ("schedules", "create", "default", HOOK, "--every", "30s")
    assert "every: must not occur more often" in cli.fails(*often, code=1)
    cli("namespaces", "update", "default", "--min-schedule-interval", "none")
    cli(*often)
