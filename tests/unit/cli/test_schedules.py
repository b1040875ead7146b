"""``duetime schedules``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.commands import Cli

FROM = ("--from", "2026-03-28T12:00:00Z")


def test_a_preview_is_a_sentence_and_a_table(store: object, cli: Cli) -> None:
    out, _ = cli("schedules", "preview", "--cron", "30 2 * * *", "--tz", "Europe/Berlin", *FROM, "--count", "2")

    assert out.splitlines() == [
        "At 02:30, every day, Europe/Berlin",
        "LOCAL TIME                     SCHEDULED AT              DUE AT",
        "2026-03-29T03:00:00.000+02:00  2026-03-29T01:00:00.000Z  2026-03-29T01:00:00.000Z",
        "2026-03-30T02:30:00.000+02:00  2026-03-30T00:30:00.000Z  2026-03-30T00:30:00.000Z",
        "CLOCKS SET FROM                TO                             AN OCCURRENCE IS",
        "2026-03-29T02:00:00.000+01:00  2026-03-29T03:00:00.000+02:00  moved",
        "2027-03-28T02:00:00.000+01:00  2027-03-28T03:00:00.000+02:00  moved",
    ]


def test_all_options_reach_the_server(store: object, cli: Cli) -> None:
    out, _ = cli(
        *("schedules", "preview", "--cron", "@daily", "--cron", "@hourly", "--every", "90m", "--rrule", "FREQ=DAILY"),
        *("--time-zone", "Europe/Berlin", "--anchor", "2026-01-01T00:00:00Z", "--start-at", "2026-01-01T00:00:00Z"),
        *("--end-at", "2026-03-30T00:00:00Z", "--exclude", "2026-03-29", "--dst", "both", "--jitter", "1s"),
        *("--window", "1m", *FROM, "--count", "1", "--id", "a", "--json"),
    )
    found = json.loads(out)

    assert found["description"] == (
        "At 00:00, every day; Every hour; Every day; Every 90 minutes, Europe/Berlin, except 2026-03-29,"
        " from 2026-01-01T00:00:00Z, until 2026-03-30T00:00:00Z, each up to 61 seconds later"
    )
    assert [item["scheduledAt"] for item in found["items"]] == ["2026-03-28T12:00:00.000Z"]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (("--cron", "0 0 31 2 *"), "cron: day-of-month: no month of the expression has such a day"),
        (("--every", "0s"), "every: must lie between"),
    ],
)
@pytest.mark.parametrize("command", [("preview",), ("create", "default", "https://receiver.test/hook")], ids=len)
def test_what_is_no_schedule_is_one_line(
    command: tuple[str, ...], given: tuple[str, ...], reason: str, store: object, cli: Cli
) -> None:
    cli("namespaces", "create", "default")

    assert cli.fails("schedules", *command, *given, code=1).startswith(reason)


HOOK = "https://receiver.test/hook"


def test_a_schedule_lives_by_commands(store: object, cli: Cli) -> None:
    cli("namespaces", "create", "default")
    out, _ = cli(
        *("schedules", "create", "default", HOOK, "--id", "s1", "--cron", "30 9 * * *", "--tz", "Europe/Berlin"),
        *("--misfire", "latest", "--catch-up", "2h", "--overlap", "skip", "--max-firings", "7", "--pause-after", "3"),
        *("--jitter", "30s", "--payload", '{"n": 1.10}', "--tag", "a"),
    )
    assert out == "s1\n"

    made = json.loads(cli("schedules", "show", "default", "s1", "--json")[0])
    assert (made["cron"], made["timeZone"], made["jitter"]) == (["30 9 * * *"], "Europe/Berlin", "30s")
    assert (made["misfire"], made["catchUp"], made["overlap"]) == ("latest", "2h", "skip")
    assert (made["maxFirings"], made["pauseAfter"]) == (7, 3)
    assert (made["payload"], made["tags"]) == ({"n": 1.1}, ["a"])
    listed, _ = cli("schedules", "list", "default")
    assert listed.splitlines()[1].startswith("s1  Active")
    paused = json.loads(cli("schedules", "pause", "default", "s1", "--reason", "moved", "--json")[0])
    assert (paused["state"], paused["pauseReason"]) == ("Paused", "moved")
    resumed = json.loads(cli("schedules", "resume", "default", "s1", "--if-revision", "2", "--json")[0])
    assert resumed["state"] == "Active"
    changed = json.loads(
        cli("schedules", "update", "default", "s1", "--cron", "0 8 * * *", "--clear", "max-firings", "--json")[0]
    )
    assert (changed["cron"], changed["maxFirings"], changed["overlap"]) == (["0 8 * * *"], None, "skip")
    assert "firing id" in cli("schedules", "trigger", "default", "s1")[0]
    shown, _ = cli("schedules", "occurrences", "default", "s1", "--count", "3")
    assert "0       Triggered  Ongoing" in shown
    assert len(shown.splitlines()) == 2 + 1 + 3
    put = json.loads(cli("schedules", "put", "default", "s1", HOOK, "--every", "90m", "--paused", "--json")[0])
    assert (put["every"], put["state"]) == ("1h30m", "Paused")
    _, err = cli("schedules", "delete", "default", "s1")
    assert err == "removed s1\n"
    assert "does not exist" in cli.fails("schedules", "show", "default", "s1", code=1)


def test_the_next_times_of_a_schedule_are_shown_in_its_time_zone(store: object, cli: Cli) -> None:
    cli("namespaces", "create", "default")
    times = ("--cron", "30 9 * * *", "--tz", "Asia/Kolkata", "--start-at", "2999-12-31T00:00:00Z")
    cli("schedules", "create", "default", HOOK, "--id", "s1", *times)

    assert cli("schedules", "next", "default", "s1", "--count", "1")[0].splitlines() == [
        "LOCAL TIME                     SCHEDULED AT              DUE AT",
        "2999-12-31T09:30:00.000+05:30  2999-12-31T04:00:00.000Z  2999-12-31T04:00:00.000Z",
    ]
    lines = cli("schedules", "next", "default", "s1", "--json")[0].splitlines()
    assert [json.loads(line)["localTime"][:10] for line in lines[:2]] == ["2999-12-31", "3000-01-01"]
    assert len(lines) == 10
    assert "does not exist" in cli.fails("schedules", "next", "default", "s2", code=1)


def test_schedules_are_listed_paused_and_resumed_by_filter(store: object, cli: Cli) -> None:
    cli("namespaces", "create", "default")
    for name, tag in (("a", "x"), ("b", "x"), ("c", "y")):
        cli("schedules", "create", "default", HOOK, "--id", name, "--every", "1h", "--tag", tag)

    assert cli("schedules", "pause-many", "default", "--tag", "x", "--dry-run")[0] == "2 would be paused, 0 skipped\n"
    assert cli("schedules", "pause-many", "default", "--tag", "x")[0] == "2 paused, 0 skipped\n"
    listed, _ = cli("schedules", "list", "default", "--state", "paused")
    assert {line.split()[0] for line in listed.splitlines()[1:]} == {"a", "b"}
    soon, _ = cli("schedules", "list", "default", "--tag", "y", "--due-to", "2020-01-01T00:00:00Z")
    assert len(soon.splitlines()) == 1
    assert cli("schedules", "resume-many", "default")[0] == "2 resumed, 0 skipped\n"
    assert cli("schedules", "recompute", "--dry-run")[0] == "0 would be moved, 0 skipped\n"
    assert cli("schedules", "recompute", "default")[0] == "0 moved, 0 skipped\n"


def test_a_schedule_is_backfilled(store: object, cli: Cli) -> None:
    cli("namespaces", "create", "default")
    cli("schedules", "create", "default", HOOK, "--id", "s", "--cron", "@daily")
    times = ("--from", "2026-01-01T00:00:00Z", "--to", "2026-01-08T00:00:00Z")

    told, _ = cli("schedules", "backfill", "default", "s", *times, "--rate-limit", "0.1", "--dry-run")
    assert told.startswith("7 would be sent, 0 are to be sent already, the last at ")
    assert cli("schedules", "backfill", "default", "s", *times)[0].startswith("7 to be sent")
    assert cli("schedules", "backfill", "default", "s", *times)[0].startswith("0 to be sent, 7 are")
    assert cli("schedules", "cancel-backfill", "default", "s", "--dry-run")[0] == "7 would be cancelled, 0 skipped\n"
    assert cli("schedules", "cancel-backfill", "default", "s")[0] == "7 cancelled, 0 skipped\n"
    assert cli("schedules", "cancel-backfill", "default", "s")[0] == "0 cancelled, 0 skipped\n"


def test_a_schedule_submits_the_service_call_of_a_file(store: object, cli: Cli, tmp_path: Path) -> None:
    cli("namespaces", "create", "default")
    file = tmp_path / "call.json"
    file.write_text(f'{{"name": "close", "request": {{"method": "POST", "url": "{HOOK}", "body": {{"n": 1.10}}}}}}')

    cli("schedules", "create", "default", "--id", "s1", "--every", "1h", "--service-call", str(file))

    shown, _ = cli("schedules", "show", "default", "s1", "--json")
    assert '"body":{"n": 1.10}' in shown
    assert json.loads(shown)["serviceCall"]["name"] == "close"
    file.write_text("{")
    assert "--service-call" in cli.fails("schedules", "update", "default", "s1", "--service-call", str(file), code=2)
    assert "callbackUrl" in cli.fails("schedules", "create", "default", "--every", "1h", code=1)
