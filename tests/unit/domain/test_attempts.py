from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duetime.domain.attempts import (
    MAX_ATTEMPTS_LOGGED,
    MAX_LOG_BYTES,
    MAX_MESSAGE_CHARACTERS,
    AttemptOutcome,
    AttemptRecord,
    append_attempt,
    read_attempts,
)
from duetime.domain.timers import FailureReason
from tests.support.clock import NOW as START

FIRED = AttemptRecord(
    number=1,
    firing_id="0197f3c2-6c1e-7000-8000-000000000001",
    started_at=START,
    duration_ms=12,
    outcome=AttemptOutcome.FIRED,
    status=200,
    headers={"content-type": "application/json"},
    body='{"ok":true}',
    body_bytes=11,
)
RETRY = replace(
    FIRED,
    outcome=AttemptOutcome.RETRY,
    status=503,
    reason=FailureReason.HTTP_STATUS,
    message="the receiver answered with status 503",
)

texts = st.text(st.characters(exclude_categories=["Cs"]))
instants = st.datetimes(datetime(1970, 1, 1), datetime(9998, 12, 31), timezones=st.just(UTC)).map(
    lambda instant: instant.replace(microsecond=instant.microsecond // 1000 * 1000)
)
records = st.builds(
    AttemptRecord,
    number=st.integers(1, 1000),
    firing_id=st.uuids().map(str),
    started_at=instants,
    duration_ms=st.integers(0, 900_000),
    outcome=st.sampled_from(AttemptOutcome),
    status=st.none() | st.integers(100, 999),
    reason=st.none() | st.sampled_from(FailureReason),
    error_class=st.none() | st.sampled_from(["timeout", "tls"]),
    message=texts.map(lambda text: text[:MAX_MESSAGE_CHARACTERS]),
    headers=st.dictionaries(texts.map(lambda text: text[:20]), texts.map(lambda text: text[:20]), max_size=4),
    body=st.none() | texts.map(lambda text: text[:256]),
    body_bytes=st.integers(0, 65_536),
    body_truncated=st.booleans(),
    first_started_at=st.none() | instants,
)


@given(records)
def test_what_is_appended_first_is_read_back_as_it_was(record: AttemptRecord) -> None:
    log = append_attempt(None, record)
    assert read_attempts(log) == [record]
    assert append_attempt("", record) == log


@given(st.lists(records, min_size=1, max_size=14))
def test_the_newest_attempts_are_kept_oldest_first(attempts: list[AttemptRecord]) -> None:
    log = None
    for record in attempts:
        log = append_attempt(log, record)
    assert log is not None
    assert len(log.encode()) <= MAX_LOG_BYTES
    kept = read_attempts(log)
    assert 1 <= len(kept) <= MAX_ATTEMPTS_LOGGED
    assert kept[-1] == attempts[-1]
    for record, original in zip(kept[:-1], attempts[-len(kept) : -1], strict=True):
        if original.outcome.is_success:
            assert (record.headers, record.body) == ({}, None)
        else:
            assert record == original


def test_ten_attempts_are_kept() -> None:
    log = None
    for number in range(1, 25):
        log = append_attempt(log, replace(RETRY, number=number))
    assert [record.number for record in read_attempts(log)] == list(range(15, 25))


def test_the_log_reaches_back_to_the_second_last_success() -> None:
    rescheduled = replace(FIRED, outcome=AttemptOutcome.RESCHEDULED)
    log = None
    for day in range(5):
        log = append_attempt(log, replace(RETRY, firing_id=f"day {day}"))
        log = append_attempt(log, replace(rescheduled, firing_id=f"day {day}"))
    log = append_attempt(log, replace(RETRY, firing_id="day 5"))
    kept = [(record.firing_id, record.outcome.value) for record in read_attempts(log)]
    assert kept == [
        ("day 3", "Rescheduled"),
        ("day 4", "Retry"),
        ("day 4", "Rescheduled"),
        ("day 5", "Retry"),
    ]


def test_the_oldest_give_way_when_the_attempts_are_large() -> None:
    log = None
    large = replace(RETRY, body="x" * 2048, body_bytes=2048)
    for number in range(1, 12):
        log = append_attempt(log, replace(large, number=number))
    assert log is not None
    assert len(log.encode()) <= MAX_LOG_BYTES
    assert [record.number for record in read_attempts(log)] == [9, 10, 11]


@pytest.mark.parametrize("character", ["\0", "\U0010ffff", '"', "\\"])
def test_one_attempt_whose_bytes_all_need_escaping_stays_bounded(character: str) -> None:
    record = replace(
        RETRY, message=character * 500, headers={"x": character * 2000}, body=character * 2048, body_bytes=9999
    )
    log = append_attempt(None, record)
    assert len(log.encode()) <= MAX_LOG_BYTES
    (kept,) = read_attempts(log)
    assert kept.body_truncated
    assert kept.message == record.message[:MAX_MESSAGE_CHARACTERS]


def test_of_earlier_successes_only_what_happened_is_kept() -> None:
    rescheduled = replace(FIRED, outcome=AttemptOutcome.RESCHEDULED)
    log = append_attempt(append_attempt(append_attempt(None, rescheduled), RETRY), rescheduled)
    first, second, third = read_attempts(log)
    assert first == replace(rescheduled, headers={}, body=None, body_truncated=True)
    assert second == RETRY
    assert third == rescheduled


@pytest.mark.parametrize(
    "log", ["", "x", "[", "{}", "null", "3", '"s"', "[1, null, {}]", "[[1]]", '[[1,"f",2,3,[]]]', "[" * 100_000]
)
def test_a_damaged_log_is_begun_anew(log: str) -> None:
    assert read_attempts(log) == []
    assert read_attempts(append_attempt(log, FIRED)) == [FIRED]


def test_a_damaged_attempt_does_not_hide_the_others() -> None:
    (entry,) = json.loads(append_attempt(None, FIRED))
    damaged = [
        [None, *entry[1:]],
        [*entry[:2], 10**30, *entry[3:]],
        [*entry[:4], "unheard of", *entry[5:]],
        [*entry[:6], 3],
        [*entry, *entry],
        [1],
        entry,
    ]
    assert read_attempts(json.dumps(damaged)) == [FIRED]


def test_an_attempt_that_no_store_would_take_is_dropped() -> None:
    (entry,) = json.loads(append_attempt(None, RETRY))
    assert read_attempts(append_attempt(json.dumps([[*entry[:-1], "\ud800"]]), FIRED)) == [FIRED]


def test_the_end_of_an_attempt() -> None:
    assert FIRED.finished_at == START + timedelta(milliseconds=12)


def test_the_log_of_a_plain_success_is_small() -> None:
    assert len(append_attempt(None, FIRED).encode()) < 140
