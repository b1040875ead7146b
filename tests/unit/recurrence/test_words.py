"""The sentence that a schedule is told by."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from duetime.recurrence.spec import TimingSpec
from duetime.recurrence.words import sentence


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"cron": ("30 9 * * 1-5",), "time_zone": "Europe/Berlin"}, "At 09:30, Monday to Friday, Europe/Berlin"),
        ({"cron": ("@daily",)}, "At 00:00, every day, UTC"),
        ({"cron": ("@hourly",)}, "Every hour, UTC"),
        ({"cron": ("30,0 9 * * *",)}, "At 09:00 and 09:30, every day, UTC"),
        (
            {"cron": ("0,15,15 12,0 1 JAN *",)},
            "At 00:00, 00:15, 12:00 and 12:15, on day 1 of the month, only in January, UTC",
        ),
        ({"cron": ("0 0,30 9 * * MON",)}, "At 09:00 and 09:30, only on Monday, UTC"),
        ({"cron": ("cron(0,30 9 ? * MON-FRI 2030)",)}, "At 09:00 and 09:30, Monday to Friday, only in 2030, UTC"),
        ({"cron": ("0,30 * * * *",)}, "At 0 and 30 minutes past the hour, UTC"),
        (
            {"cron": ("0,30 9-17 * * *",)},
            "At 0 and 30 minutes past the hour, between 09:00 and 17:59, every day, UTC",
        ),
        ({"cron": ("*/30 * * * *",)}, "Every 30 minutes, UTC"),
        ({"cron": ("0 9 15W * *",)}, "At 09:00, on the weekday nearest day 15 of the month, UTC"),
        ({"cron": ("0 9 1W,15W,L * *",)}, "At 09:00, on days 1W, 15W, L of the month, UTC"),
        (
            {"cron": ("cron(0 10 ? * MON#2 2026-2030)",)},
            "At 10:00, on the second Monday of the month, 2026 to 2030, UTC",
        ),
        ({"cron": ("rate(5 minutes)",)}, "Every 5 minutes"),
        ({"every_ms": 5_400_000}, "Every 90 minutes"),
        ({"cron": ("rate(1 day)",), "every_ms": 3_600_000}, "Every day; Every hour"),
        ({"every_ms": 1500}, "Every 1s500ms"),
        (
            {"rrule": ("FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,FR;BYHOUR=9;BYMINUTE=30",)},
            "Every 2 weeks on Monday and Friday at 09:30, UTC",
        ),
        ({"rrule": ("FREQ=MONTHLY;BYDAY=-1FR",)}, "Every month on the last Friday, UTC"),
        (
            {"rrule": ("FREQ=YEARLY;BYMONTH=1,7;BYMONTHDAY=-2",)},
            "Every year in January and July on day 2 from the end of the month, UTC",
        ),
        (
            {"cron": ("0 9 * * *",), "exclude": ("* * * * 0,6", "2026-12-25"), "window_ms": 900_000},
            "At 09:00, every day, UTC, except on Sunday and Saturday and 2026-12-25, each up to 15 minutes later",
        ),
        (
            {"cron": ("0 9 * * *",), "start_at": datetime(2026, 1, 1, tzinfo=UTC)},
            "At 09:00, every day, UTC, from 2026-01-01T00:00:00Z",
        ),
    ],
)
def test_a_schedule_is_told_in_a_sentence(spec: dict[str, Any], expected: str) -> None:
    assert sentence(TimingSpec(**spec)) == expected


def test_both_days_are_told_as_crontab_means_them() -> None:
    assert sentence(TimingSpec(cron=("0 0 13 * 5",))).endswith("when either matches, UTC")
    assert sentence(TimingSpec(cron=("0 0 */2 * 5",))).endswith("when both match, UTC")
