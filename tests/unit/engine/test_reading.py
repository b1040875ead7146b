from __future__ import annotations

from datetime import timedelta

import pytest

from duetime.engine.shards.reading import Reading
from duetime.engine.waiting import MAX_BACKOFF_SECONDS
from tests.support.clock import NOW
from tests.support.shard_reading import MS, SETTINGS, A, Subject, everyone, has_room, of

# -- while all that is due can be taken -----------------------------------------------------------------------------


def test_an_idle_shard_is_read_once_at_each_interval_and_backs_off_to_the_poll_interval() -> None:
    subject, waits = Subject(), []
    for _ in range(6):
        request = subject.read()
        assert (request.reading, request.since, request.cursor) == (Reading.SURVEY, None, None)
        waits.append(round(subject.wait() - subject.monotonic, 3))
        subject.at(subject.wait())
    assert waits == [0.2, 0.4, 0.8, 0.8, 0.8, 0.8]


def test_the_next_read_is_at_the_next_due_time_to_the_millisecond() -> None:
    subject = Subject().at(5.0)
    subject.read(following=subject.now + 30 * MS)
    assert subject.wait() == 5.03


def test_at_a_known_time_only_what_has_become_due_since_is_read() -> None:
    subject = Subject()
    subject.read(of("a"), following=NOW + 30 * MS)
    request = subject.at(0.03).read(of("a"))
    assert (request.reading, request.since, request.cursor) == (Reading.TAIL, NOW, None)
    assert subject.wait() == SETTINGS.min_poll_interval_seconds
    assert subject.at(0.1).read().since is None


def test_a_hint_that_comes_during_a_read_is_not_forgotten() -> None:
    subject = Subject()
    subject.reading.is_polling = True
    subject.note_due(NOW + 10 * MS)
    subject.reading.is_polling = False
    subject.read()
    assert subject.wait() == 0.01


def test_a_hint_that_comes_between_two_pages_of_the_tail_is_not_forgotten() -> None:
    subject = Subject()
    subject.read(following=NOW + 30 * MS)
    subject.at(0.03).read(of("a"), cursor="1", accepted=1)
    subject.note_due(NOW + 60 * MS)
    subject.read(of("a"), accepted=1)
    assert subject.wait() == 0.06


def test_a_hint_is_followed_once() -> None:
    subject = Subject()
    subject.read(of("a"))
    subject.reading.is_polling = True
    subject.note_due(NOW)
    subject.reading.is_polling = False
    assert subject.read(of("a")).reading is Reading.TAIL
    assert subject.wait() == SETTINGS.min_poll_interval_seconds


def test_a_hint_about_the_past_is_followed_back() -> None:
    subject, past = Subject(), NOW - timedelta(seconds=5)
    subject.read(of("a"))
    subject.at(0.01).note_due(past)
    assert subject.next().since == past


def test_what_is_known_of_the_time_to_come_is_told_to_the_store() -> None:
    subject, later = Subject(), NOW + timedelta(seconds=30)
    subject.read(following=later)
    assert subject.at(0.2).next().known_next == later
    assert subject.at(30.0).next().known_next is None


def test_a_failed_read_backs_off_and_goes_on_where_it_was() -> None:
    subject = Subject()
    subject.read(of("a"), cursor="next", accepted=1)
    waits = []
    for _ in range(8):
        subject.reading.fail(monotonic=subject.monotonic, random=1.0)
        waits.append(round(subject.wait() - subject.monotonic, 3))
        subject.at(subject.wait())
    assert waits[:3] == [0.1, 0.2, 0.4]
    assert waits[-1] == MAX_BACKOFF_SECONDS
    requests = [subject.read(), subject.read(of("a"))]
    assert {(request.reading, request.cursor) for request in requests} == {
        (Reading.TAIL, None),
        (Reading.SURVEY, "next"),
    }


def test_a_clock_that_was_set_back_is_no_reason_to_read_from_the_future() -> None:
    subject = Subject().at(60.0)
    subject.read(following=subject.now + 30 * MS)
    request, _ = subject.reading.plan(NOW, 60.03, everyone, has_room)
    assert request is not None
    assert request.since == request.until == NOW


# -- a survey of many pages -----------------------------------------------------------------------------------------


def test_a_survey_that_begins_with_nothing_left_goes_through_at_once_although_queues_are_refused() -> None:
    subject = Subject()
    subject.read(of("a"), cursor="1", refused=(A,), busy_seconds=0.002)
    for page in range(1, 20):
        request = subject.read(of("a"), cursor=str(page + 1), refused=(A,), busy_seconds=0.002, asks=False)
        assert (request.reading, request.cursor) == (Reading.SURVEY, str(page))


def test_a_survey_of_several_pages_after_which_nothing_is_left_was_a_read_as_any_other() -> None:
    subject = Subject()
    subject.read(of("a"), cursor="1", accepted=1)
    subject.read(of("a"), accepted=1)
    request = subject.at(subject.wait()).next()
    assert (subject.monotonic, request.reading) == (SETTINGS.min_poll_interval_seconds, Reading.SURVEY)


def test_a_hint_that_comes_as_a_long_survey_begins_is_followed_back() -> None:
    subject, past = Subject(), NOW - MS
    subject.reading.is_polling = True
    subject.note_due(past)
    subject.reading.is_polling = False
    subject.reading.tail_at = 1000.0  # the page of the survey is being read already
    subject.read(of("a"), cursor="1", refused=(A,))
    assert subject.at(0.1).next().since == past


def test_during_a_survey_a_queue_that_wants_more_has_a_quarter_of_the_time() -> None:
    subject, readings = Subject(), []
    for page in range(1, 41):
        request = subject.read(of("a"), cursor=f"{page:02}", refused=(A,), accepted=1, busy_seconds=0.002)
        readings.append(request.reading)
    assert readings.count(Reading.CATCH_UP) == 10


def test_during_a_survey_what_becomes_due_from_its_beginning_on_is_read_at_every_interval() -> None:
    subject = Subject()
    subject.read(of("a"), cursor="1", refused=(A,))
    request = subject.at(0.1).next()
    assert (request.reading, request.since) == (Reading.TAIL, NOW)


def test_while_queues_are_left_a_survey_goes_through_at_once_and_then_rests_nine_times_as_long() -> None:
    subject = Subject()
    subject.read(of("a"), refused=(A,))
    subject.reading.tail_at = 1000.0
    assert subject.wait(asks=False) == 0.05  # then the queues are asked again
    subject.at(5.0)
    for page in range(1, 51):
        cursor = None if page == 50 else f"{page:02}"
        assert (
            subject.read(of("a"), cursor=cursor, refused=(A,), busy_seconds=0.02, asks=False).reading
            is Reading.SURVEY
        )
    assert subject.reading.survey_at == pytest.approx(6.0 + 9 * 1.0)


def test_with_a_queue_left_the_tail_looks_back_for_what_became_visible_late() -> None:
    subject = Subject()
    subject.read(of("a"), refused=(A,))
    assert subject.at(0.1).read().since == NOW  # not before the survey
    assert subject.at(10.0).read(following=subject.now + 50 * MS).since == NOW + timedelta(seconds=0.1 - 0.1)
    assert subject.at(10.05).read().since == NOW + timedelta(seconds=10)
    assert subject.at(20.0).read().since == NOW + timedelta(seconds=10.05 - 2)
