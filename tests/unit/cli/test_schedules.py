"""``duetime schedules``."""

from __future__ import annotations

import json

from tests.support.commands import Cli

FROM = ("--from", "2026-03-28T12:00:00Z")


def test_a_preview_is_a_sentence_and_a_table(store: object, cli: Cli) -> None:
    out, _ = cli("schedules", "preview", "--cron", "30 2 * * *", "--tz", "Europe/Berlin", *FROM, "--count", "2")

    assert out.splitlines() == [
        "At 02:30, every day, Europe/Berlin",
        "LOCAL TIME                     SCHEDULED AT              DUE AT",
        "2026-03-29T03:00:00.000+02:00  2026-03-29T01:00:00.000Z  2026-03-29T01:00:00.000Z",
        "2026-03-30T02:30:00.000+02:00  2026-03-30T00:30:00.000Z  2026-03-30T00:30:00.000Z",
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


def test_what_is_no_schedule_is_one_line(store: object, cli: Cli) -> None:
    err = cli.fails("schedules", "preview", "--cron", "0 0 31 2 *", code=1)

    assert "cron: day-of-month: no month of the expression has such a day" in err
