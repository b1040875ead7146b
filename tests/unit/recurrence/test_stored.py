"""The times of a schedule as they are stored: read back as they were, and what is damaged is told."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duetime.domain.errors import ScheduleUnreadable
from duetime.domain.ids import schedule_timer_id
from duetime.domain.timers import Timer
from duetime.domain.times import MIN_INSTANT
from duetime.recurrence.spec import Dst, TimingSpec
from duetime.recurrence.stored import occurrences_of, timing_json, timing_of
from duetime.testing.contract.builders import make_namespace, make_timer

TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
INSTANTS = st.integers(0, 253_402_300_799_999).map(lambda ms: MIN_INSTANT + timedelta(milliseconds=ms))
SPECS = st.builds(
    TimingSpec,
    cron=st.lists(TEXTS, max_size=2).map(tuple),
    every_ms=st.none() | st.integers(1000, 2**40),
    rrule=st.lists(TEXTS, max_size=2).map(tuple),
    anchor=st.none() | INSTANTS,
    time_zone=TEXTS,
    dst=st.sampled_from(Dst),
    start_at=st.none() | INSTANTS,
    end_at=st.none() | INSTANTS,
    exclude=st.lists(TEXTS, max_size=2).map(tuple),
    jitter_ms=st.integers(0, 86_400_000),
    window_ms=st.integers(0, 86_400_000),
)


def schedule(text: str) -> Timer:
    return make_timer(make_namespace("default"), schedule_timer_id("s1"), timing_json=text)


@given(SPECS)
def test_times_are_read_as_they_were_stored(spec: TimingSpec) -> None:
    assert timing_of(schedule(timing_json(spec))) == spec


def test_what_is_by_default_takes_no_room() -> None:
    assert timing_json(TimingSpec(cron=("0 9 * * *",))) == '{"cron":["0 9 * * *"]}'


def test_stored_times_have_occurrences() -> None:
    text = timing_json(TimingSpec(cron=("0 9 * * *",), time_zone="Europe/Berlin"))

    first = occurrences_of(schedule(text), lambda _: None).after(datetime(2026, 12, 20, tzinfo=UTC))

    assert first is not None
    assert first.scheduled_at == datetime(2026, 12, 20, 8, tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "1", "null", '{"other":1}', '{"cron":1}', '{"startAt":1}', '{"dst":"never"}', "{}"),
        '{"cron":["0 9 * * *"],"time_zone":"Mars/Olympus"}',
    ],
)
def test_what_was_not_stored_by_us_is_told(text: str) -> None:
    with pytest.raises(ScheduleUnreadable):
        occurrences_of(schedule(text), lambda _: None)
