"""Backfills, from the client to the receiver, in virtual time."""

from __future__ import annotations

from datetime import timedelta

import pytest

from duetime.testing import in_memory
from duetime_client import NewSchedule, PreconditionFailed, RetryPolicy

URL = "https://app.example.com/hook"
HOUR = timedelta(hours=1)


def test_occurrences_are_sent_once_more_at_the_rate_and_known_by_their_ids() -> None:
    with in_memory() as duetime:
        schedules, receiver = duetime.client.schedules, duetime.receiver
        start = duetime.clock.now()
        policy = RetryPolicy(initial_interval=timedelta(seconds=10))
        schedules.create("default", NewSchedule(callback_url=URL, every=HOUR, retry_policy=policy), schedule_id="s")
        duetime.clock.advance(hours=4.5)
        first = list(receiver.requests)
        history = schedules.occurrences("default", "s").past
        receiver.clear()
        receiver.answer(503, 200)

        counted = schedules.backfill("default", "s", from_at=start + 2 * HOUR, rate_limit=0.5, dry_run=True)
        made = schedules.backfill("default", "s", from_at=start + 2 * HOUR, rate_limit=0.5, page_size=2)
        duetime.clock.advance(minutes=1)

        assert (counted.created, made) == (3, counted)
        assert [(each.at - start - 4.5 * HOUR).total_seconds() for each in receiver.requests] == [0, 2, 4, 10]
        sent = [each.json() for each in receiver.requests]
        assert [each["scheduledAt"] for each in sent] == [
            each.json()["scheduledAt"] for each in (*first[1:], first[1])
        ]
        ids = [each.headers["webhook-id"] for each in receiver.requests]
        assert ids == [each.headers["webhook-id"] for each in (*first[1:], first[1])]
        assert [(each["occurrence"], each["attempt"]) for each in sent] == [(0, 1), (0, 1), (0, 1), (0, 2)]
        past = schedules.occurrences("default", "s").past
        assert [each for each in past if each.kind == "Scheduled"] == list(history)
        again = [each for each in past if each.kind == "Backfilled"]
        assert [(each.number, each.state, each.attempts) for each in again] == [
            (0, "Fired", 1),
            (0, "Fired", 1),
            (0, "Fired", 2),
        ]
        assert [each.scheduled_at for each in past] == sorted((each.scheduled_at for each in past), reverse=True)
        assert schedules.get("default", "s").firings == len(first)


def test_what_is_cancelled_is_not_sent() -> None:
    with in_memory() as duetime:
        schedules = duetime.client.schedules
        schedules.create("default", NewSchedule(callback_url=URL, every=HOUR), schedule_id="s")
        duetime.clock.advance(hours=9.5)
        schedules.pause("default", "s")
        duetime.receiver.clear()

        schedules.backfill("default", "s", from_at=duetime.clock.now() - 9 * HOUR, rate_limit=1)
        duetime.clock.advance(seconds=3)
        waiting = schedules.cancel_backfill("default", "s", dry_run=True)
        cancelled = schedules.cancel_backfill("default", "s", page_size=2)
        duetime.clock.advance(hours=1)

        assert len(duetime.receiver.requests) == 4
        assert (waiting.cancelled, cancelled) == (5, waiting)


def test_a_deleted_schedule_sends_nothing_more_of_its_backfills() -> None:
    with in_memory() as duetime:
        schedules = duetime.client.schedules
        schedules.create("default", NewSchedule(callback_url=URL, every=HOUR), schedule_id="s")
        schedules.create("default", NewSchedule(callback_url=URL, every=HOUR), schedule_id="other")
        duetime.clock.advance(hours=150.5)
        for name in ("s", "other"):
            schedules.pause("default", name)
            schedules.backfill("default", name, from_at=duetime.clock.now() - 149 * HOUR, rate_limit=1)
        duetime.receiver.clear()
        stale = schedules.get("default", "s").revision - 1

        with pytest.raises(PreconditionFailed):
            schedules.delete("default", "s", if_revision=stale)
        assert schedules.cancel_backfill("default", "s", dry_run=True).cancelled > 100
        schedules.delete("default", "s")
        duetime.clock.advance(hours=1)

        sent = [each.json()["scheduleId"] for each in duetime.receiver.requests]
        assert sent.count("s") <= 1
        assert sent.count("other") > 100
