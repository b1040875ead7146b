from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from duetime.engine.keys import QueueKey, queue_key
from duetime.engine.shards.reading import (
    END,
    START,
    Offered,
    PageRequest,
    Position,
    Reading,
    ShardReading,
    Span,
    Unwanted,
)
from duetime.stores.port.timers import DuePage
from tests.support.clock import NOW
from tests.support.engine import make_timer
from tests.support.shard_reading import MS, SETTINGS, A, B, Subject, has_room, monotonic_at, nobody, of


def test_nothing_is_caught_up_with_while_nobody_wants_more() -> None:
    subject = Subject()
    subject.read(of("a"), refused=(A,))
    assert subject.wait(asks=False) <= SETTINGS.poll_interval_seconds
    assert subject.next().reading is Reading.CATCH_UP


def test_a_queue_is_caught_up_with_from_the_page_at_which_it_was_left_and_gets_nothing_from_later_ones() -> None:
    subject, later = Subject(), Span(Position(NOW, "2"), END)
    subject.read(of("b"), cursor="1", accepted=1)
    subject.read(of("a"), cursor="2", refused=(A,))
    subject.read(of("a"), refused=(A,), asks=False)
    assert not subject.reading.may_take(A, later)
    assert subject.reading.may_take(B, later)
    request = subject.next()
    assert (request.reading, request.cursor) == (Reading.CATCH_UP, "1")
    assert subject.reading.may_take(A, Span(request.position, later.begin))


def test_a_queue_whose_timer_is_given_up_during_a_read_is_left_for_the_page_may_not_have_it() -> None:
    subject = Subject()
    subject.reading.is_polling = True
    subject.reading.leave(A, Span(START, END))
    subject.reading.is_polling = False
    subject.read(of("b"), accepted=1)
    assert subject.reading.has_backlog
    subject.at(1.0).read(of("a"), accepted=1)
    assert not subject.reading.has_backlog


def test_pages_further_on_pass_over_a_queue_that_was_left_and_its_own_page_does_not() -> None:
    subject = Subject()
    assert not subject.next().unwanted.is_any()
    subject.read(of("a"), cursor="1", refused=(A,))
    further = subject.next(asks=False).unwanted
    assert further.is_any()
    assert not further.wants(A[0], f"{A[1]}/hook")
    assert further.wants(B[0], f"{B[1]}/hook")
    assert further.wants(A[0], "http://elsewhere.test/hook")
    assert further.met == {A}
    request = subject.next()
    assert (request.reading, request.cursor) == (Reading.CATCH_UP, None)
    assert not request.unwanted.is_any()


def test_a_page_passes_over_a_namespace_that_has_no_room_and_its_queues_are_left_there() -> None:
    subject, other = Subject(), ("a", "http://elsewhere.test")
    subject.read(of("a"), cursor="1", refused=(A,))
    request, _ = subject.reading.plan(NOW, 0.0, nobody, lambda namespace: namespace == "a")
    assert request is not None
    assert not request.unwanted.wants(*other)
    page = DuePage([], cursor="2", cursor_at=NOW)
    subject.reading.finish(
        request, page, Offered(), busy_seconds=0.0, monotonic=0.0, monotonic_at=monotonic_at, settings=SETTINGS
    )
    later = Span(Position(NOW, "2"), END)
    assert not subject.reading.may_take(other, later)
    assert subject.reading.may_take(other, Span(Position(NOW, "1"), later.begin))
    assert subject.next(asks=False).cursor == "2"


def test_a_queue_stays_on_its_page_until_all_of_its_timers_there_are_taken() -> None:
    subject = Subject()
    subject.read(of("a"), cursor="1", refused=(A,))
    subject.read(of("a"), refused=(A,), asks=False)
    assert subject.read(of("a"), cursor="1", refused=(A,), accepted=1).cursor is None
    assert subject.read(of("a"), cursor="1", accepted=1).cursor is None
    assert subject.read(of("a"), accepted=1).cursor == "1"
    assert not subject.reading.has_backlog


def test_when_no_queue_is_left_all_is_looked_through_at_once() -> None:
    subject = Subject()
    subject.read(of("a"), refused=(A,))
    subject.read(of("a"), accepted=1)
    request = subject.next()
    assert (request.reading, request.position) == (Reading.SURVEY, START)


def test_a_queue_is_not_looked_for_beyond_the_last_page_on_which_it_was_seen() -> None:
    subject = Subject()
    subject.read(of("a"), cursor="1", refused=(A,))
    for page in range(1, 50):
        subject.read(of("b"), cursor=f"{page + 1}", accepted=1, asks=False)
    assert subject.read(of("a"), cursor="1", accepted=1).reading is Reading.CATCH_UP
    assert not subject.reading.has_backlog


def test_queues_take_turns() -> None:
    subject, later = Subject(), NOW + timedelta(seconds=1)
    subject.at(2.0).read(of("a"), cursor="1", refused=(A,))
    subject.read(of("b", at=later), refused=(B,), asks=False)
    cursors = []
    for _ in range(4):
        position = subject.next().position
        namespace, at, key = ("a", NOW, A) if position == START else ("b", later, B)
        end = "1" if position == START else None
        cursors.append(subject.read(of(namespace, at=at), cursor=end, refused=(key,), accepted=1).cursor)
    assert cursors == [None, "1", None, "1"]


def test_queues_that_were_left_close_to_each_other_are_read_together() -> None:
    subject = Subject()
    subject.read(of("a"), cursor="1", refused=(A,))
    subject.read(of("b"), cursor="2", refused=(B,), asks=False)
    subject.read(of("c"), accepted=1, asks=False)
    assert subject.read(of("b"), cursor="15", accepted=2).position == START
    assert list(subject.reading.left) == [B]
    assert subject.next().cursor == "15"


def test_of_many_queues_the_one_that_wants_more_is_found() -> None:
    subject = Subject()
    queues = [(f"n{number}", "http://receiver.test") for number in range(120)]
    subject.read(of("a"), refused=tuple(queues))
    for _ in range(3):
        request, _ = subject.reading.plan(subject.now, 0.0, lambda key, monotonic: key == queues[-1], has_room)
        if request is not None:
            break
    assert request is not None


def test_a_queue_of_which_a_page_has_nothing_goes_on_to_the_next_without_delay() -> None:
    subject = Subject()
    subject.read(of("a"), cursor="1", refused=(A, B))
    subject.read(of("a"), refused=(A, B), asks=False)
    subject.reading.tail_at = 1000.0
    subject.read(of("b"), cursor="1", refused=(B,))
    assert subject.wait() == 0.01


def test_a_page_of_which_nothing_can_be_taken_is_not_read_over_and_over() -> None:
    subject = Subject()
    subject.read(of("a"), refused=(A,))
    subject.read(of("a"), refused=(A,))
    subject.reading.tail_at = 1000.0
    assert subject.wait() == 0.1


def test_a_timer_that_was_given_up_is_read_again_from_its_own_page_before_the_later_ones() -> None:
    subject = Subject()
    subject.read(of("a"), cursor="1", accepted=1)
    subject.read(of("a"), refused=(A,))
    subject.reading.leave(A, Span(START, Position(NOW, "1")))
    assert subject.read(of("a"), cursor="1", accepted=1).position == START
    assert subject.read(of("a"), accepted=1).cursor == "1"
    assert not subject.reading.has_backlog


def test_a_store_whose_cursors_do_not_sort_is_read_to_its_end() -> None:
    subject = Subject()
    subject.read(of("a"), cursor="z", refused=(A,))
    subject.read(of("a"), refused=(A,), asks=False)
    assert subject.read(of("a"), cursor="z", accepted=1).position == START
    assert subject.read(of("a"), cursor="b", accepted=1).cursor == "z"
    assert subject.read(of("a"), accepted=1).cursor == "b"
    assert not subject.reading.has_backlog


def test_of_several_shards_those_with_something_new_come_first_then_who_is_furthest_behind() -> None:
    def request(reading: Reading, position: Position) -> PageRequest:
        return PageRequest(0, reading, position, NOW, Unwanted({}, position, has_room))

    early, late = Position(NOW, "5"), Position(NOW + MS, "1")
    ordered = [
        request(Reading.TAIL, Position(NOW)),
        request(Reading.SURVEY, START),
        request(Reading.CATCH_UP, early),
        request(Reading.CATCH_UP, late),
        request(Reading.SURVEY, early),
    ]
    shuffled = [ordered[at] for at in (3, 1, 4, 0, 2)]
    assert sorted(shuffled, key=lambda each: each.order) == ordered


# -- all together ---------------------------------------------------------------------------------------------------

_QUEUES = [queue_key(make_timer("t", namespace=name)) for name in "abc"]


@given(
    queues=st.lists(st.sampled_from(range(3)), min_size=1, max_size=60),
    page_size=st.integers(1, 7),
    room=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 5)), min_size=1, max_size=8),
)
def test_every_timer_is_taken_once_and_those_of_a_queue_in_order(
    queues: list[int], page_size: int, room: list[tuple[int, int]]
) -> None:
    """A list of timers at one instant. In turns some queue gets room for a few; what is taken leaves the list."""
    subject = Subject()
    waiting = dict(enumerate(queues))
    free = dict.fromkeys(range(3), 0)
    taken: list[int] = []

    def wants(key: QueueKey, monotonic: float) -> bool:
        del monotonic
        return free[_QUEUES.index(key)] > 0

    for step in range(4000):
        if not waiting:
            break
        if step % 5 == 0:
            for queue, more in (room[step // 5 % len(room)], (step // 5 % 3, 1)):
                free[queue] += more
        request, at = subject.reading.plan(subject.now, subject.monotonic, wants, has_room)
        if request is None:
            subject.at(max(at, subject.monotonic + 0.001))
            continue
        if request.since is not None and request.since > NOW:
            found: list[int] = []
        else:
            found = [number for number in waiting if number > int(request.cursor or -1)]
        page, is_last = found[:page_size], len(found) <= page_size
        timers = [make_timer(f"{number}", namespace="abc"[queues[number]]) for number in page]
        answer = DuePage(timers, cursor=None if is_last else f"{page[-1]:03}")
        refused: set[QueueKey] = set()
        before = len(taken)
        for number in page:
            key = _QUEUES[queues[number]]
            is_next = key not in refused and subject.reading.may_take(key, request.span_of(answer))
            if is_next and free[queues[number]]:
                free[queues[number]] -= 1
                taken.append(number)
                del waiting[number]
            else:
                refused.add(key)
        subject.reading.finish(
            request,
            answer,
            Offered(len(taken) - before, refused),
            busy_seconds=0.001,
            monotonic=subject.monotonic,
            monotonic_at=monotonic_at,
            settings=SETTINGS,
        )
    assert not waiting
    for queue in range(3):
        of_queue = [number for number in taken if queues[number] == queue]
        assert of_queue == sorted(of_queue)


def test_queues_without_room_keep_nobody_from_the_turn_however_many_they_are() -> None:
    reading = ShardReading(shard_id=0, interval_seconds=0.1, survey_at=1e9)
    page = Span(START, END)
    for number in range(120):
        reading.leave((f"full-{number}", "http://receiver.test"), page)
    reading.leave(A, page)

    def wants(key: QueueKey, monotonic: float) -> bool:
        return key == A

    asked = [reading.plan(NOW, monotonic, wants, has_room)[0] for monotonic in range(5)]
    assert any(request is not None for request in asked)
