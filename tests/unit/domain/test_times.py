from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duetime.domain.times import (
    MAX_INSTANT,
    MIN_INSTANT,
    format_duration,
    format_instant,
    from_milliseconds,
    parse_duration,
    parse_duration_ms,
    parse_instant,
    read_instant,
    round_down,
    round_up,
    to_milliseconds,
)

instants = st.datetimes(
    MIN_INSTANT.replace(tzinfo=None), MAX_INSTANT.replace(tzinfo=None), timezones=st.just(UTC)
).map(round_down)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-12-20T15:30:00Z", "2026-12-20T15:30:00.000Z"),
        ("2026-12-20t15:30:00z", "2026-12-20T15:30:00.000Z"),
        ("2026-12-20T15:30:00+01:00", "2026-12-20T14:30:00.000Z"),
        ("2026-12-20T23:30:00-05:30", "2026-12-21T05:00:00.000Z"),
        ("2026-12-20T15:30:00-00:00", "2026-12-20T15:30:00.000Z"),
        ("2026-01-01T00:30:00+23:59", "2025-12-31T00:31:00.000Z"),
        ("2026-12-20T15:30:00.1Z", "2026-12-20T15:30:00.100Z"),
        ("2026-12-20T15:30:00.12Z", "2026-12-20T15:30:00.120Z"),
        ("2026-12-20T15:30:00.123Z", "2026-12-20T15:30:00.123Z"),
        ("2026-12-20T15:30:00.123000000Z", "2026-12-20T15:30:00.123Z"),
        ("2026-12-20T15:30:00.123000001Z", "2026-12-20T15:30:00.124Z"),
        ("2026-12-20T15:30:00.1230001Z", "2026-12-20T15:30:00.124Z"),
        ("2026-12-20T15:30:59.999999999Z", "2026-12-20T15:31:00.000Z"),
        ("1970-01-01T00:00:00Z", "1970-01-01T00:00:00.000Z"),
        ("1969-12-31T23:00:00-01:00", "1970-01-01T00:00:00.000Z"),
        ("9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999Z"),
        ("2028-02-29T00:00:00Z", "2028-02-29T00:00:00.000Z"),
    ],
)
def test_times_are_converted_to_utc_and_rounded_up_to_the_millisecond(text: str, expected: str) -> None:
    assert format_instant(parse_instant(text)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tomorrow",
        "2026-12-20",
        "2026-12-20T15:30:00",  # naive
        "2026-12-20 15:30:00Z",
        "2026-12-20T15:30Z",
        "2026-12-20T15:30:60Z",  # leap second
        "2016-12-31T23:59:60Z",
        "2026-12-20T24:00:00Z",
        "2026-12-20T15:60:00Z",
        "2026-02-29T00:00:00Z",
        "2026-13-01T00:00:00Z",
        "2026-12-20T15:30:00.Z",
        "2026-12-20T15:30:00.1234567890Z",
        "2026-12-20T15:30:00+24:00",
        "2026-12-20T15:30:00+01:60",
        "2026-12-20T15:30:00+0100",
        "1969-12-31T23:59:59.999Z",
        "9999-12-31T23:59:59.9990001Z",
        "9999-12-31T23:59:59-00:01",
        "0000-01-01T00:00:00Z",
        "10000-01-01T00:00:00Z",
        "2026-12-20T15:30:00Z ",
        "2026-12-20T15:30:00Z\n",
        "٢٠٢٦-12-20T15:30:00Z",  # digits, but not ASCII ones
        "1700000000",
    ],
)
def test_what_is_no_supported_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_instant(text)


@given(instants)
def test_stored_text_reads_back_and_sorts_in_time_order(instant: datetime) -> None:
    text = format_instant(instant)
    assert len(text) == 24
    assert read_instant(text) == instant
    assert from_milliseconds(to_milliseconds(instant)) == instant
    if instant < MAX_INSTANT:
        assert text < format_instant(instant + timedelta(milliseconds=1))


@given(
    st.datetimes(datetime(1971, 1, 1), datetime(9998, 1, 1)),
    st.integers(-23 * 60 - 59, 23 * 60 + 59),
    st.integers(0, 999_999_999),
)
def test_a_parsed_time_is_never_before_what_was_asked_for(local: datetime, offset: int, nanos: int) -> None:
    local = local.replace(microsecond=0)
    zone = timezone(timedelta(minutes=offset))
    sign = "-" if offset < 0 else "+"
    text = f"{local.isoformat()}.{nanos:09d}{sign}{abs(offset) // 60:02d}:{abs(offset) % 60:02d}"
    asked_microseconds = nanos // 1000
    asked = local.replace(tzinfo=zone) + timedelta(microseconds=asked_microseconds)
    parsed = parse_instant(text)
    assert asked <= parsed < asked + timedelta(milliseconds=1, microseconds=1)
    assert parsed.microsecond % 1000 == 0


def test_rounding() -> None:
    instant = datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC)
    assert round_down(instant) == datetime(2026, 1, 1, tzinfo=UTC)
    assert round_up(instant) == datetime(2026, 1, 1, 0, 0, 0, 1000, tzinfo=UTC)
    assert round_up(round_up(instant)) == round_up(instant)


@pytest.mark.parametrize("text", ["2026-12-20T15:30:00+01:00", "2026-12-20T15:30:00", "x"])
def test_only_stored_utc_times_are_read_back(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_instant(text)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("30s", 30),
        ("5m", 300),
        ("1h30m", 5400),
        ("250ms", 0.25),
        ("2d", 172_800),
        ("1.5h", 5400),
        ("0s", 0),
        ("PT5M", 300),
        ("P1DT2H", 93_600),
        ("P2W", 1_209_600),
        ("PT0.5S", 0.5),
        ("90", 90),
        (90, 90),
        (0.5, 0.5),
    ],
)
def test_durations(value: str | float, seconds: float) -> None:
    assert parse_duration(value) == seconds


@pytest.mark.parametrize(
    "value",
    ["", "s", "-1s", "1 s", "1y", "P1Y", "P1M", "P", "PT", "P1DT", "1h30", "inf", "nan", "1e3", -1, float("inf"),
     float("nan"), True, None, [], "9" * 400 + "s", 10**399, "40000d", "١s"],
)  # fmt: skip
def test_what_is_no_duration_is_refused(value: str | float) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_duration(value)


@given(st.integers(1, 10**11))
def test_a_duration_that_was_formatted_is_read_back_to_the_millisecond(milliseconds: int) -> None:
    assert parse_duration_ms(format_duration(milliseconds), max_ms=10**11) == milliseconds
    assert parse_duration_ms(milliseconds / 1000, max_ms=10**11) == milliseconds


def test_durations_are_formatted_in_whole_units() -> None:
    assert [format_duration(ms) for ms in (0, 1, 1000, 5_400_000, 90_061_001)] == [
        "0s",
        "1ms",
        "1s",
        "1h30m",
        "1d1h1m1s1ms",
    ]


@pytest.mark.parametrize("value", ["0s", 0, "0.4ms", "1.5ms", 1.0005, "2001ms", "soon", None])
def test_what_is_no_duration_of_whole_milliseconds_is_refused(value: str | float) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_duration_ms(value, max_ms=2000)


@pytest.mark.parametrize("value", [-1, "0s", "2001ms", 1e400, 10**400, "99999999d"])
def test_a_duration_out_of_bounds_is_refused_with_the_bounds_that_hold(value: str | float) -> None:
    with pytest.raises(ValueError, match=r"^must lie between 1ms and 2s$"):
        parse_duration_ms(value, max_ms=2000)
