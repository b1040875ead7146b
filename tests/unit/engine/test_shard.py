from __future__ import annotations

from dataclasses import replace

from duetime.domain.timers import TimerState
from duetime.engine.keys import firing_key, queue_key
from duetime.engine.shards.reading import START, Position, Span
from tests.support.clock import NOW
from tests.support.engine import make_shard, make_timer

PAGE = Span(START, Position(NOW, "first"))


def test_a_timer_in_flight_is_not_taken_up_again() -> None:
    shard, timer = make_shard(), make_timer("t")
    assert shard.is_new(timer)
    shard.take(timer, PAGE)
    assert not shard.is_new(timer)


def test_a_timer_recorded_while_a_read_was_in_flight_is_not_taken_up_from_that_page() -> None:
    shard, timer = make_shard(), make_timer("t")
    shard.take(timer, PAGE)
    shard.reading.is_polling = True
    shard.settle(firing_key(timer))
    assert not shard.is_new(timer)
    shard.end_poll()
    assert shard.is_new(timer)


def test_a_timer_that_is_given_up_is_left_on_its_page_and_may_be_taken_from_the_one_that_is_being_read() -> None:
    shard, timer = make_shard(), make_timer("t", payload_json=f'"{"x" * 10_000}"')
    shard.take(timer, PAGE)
    shard.reading.is_polling = True
    shard.give_up(queue_key(timer), timer)
    assert shard.is_new(timer)
    assert shard.reading.left == {queue_key(timer): PAGE}
    assert shard.payloads.bytes == 0


def test_a_parked_attempt_is_not_taken_up_beside_itself() -> None:
    shard, timer = make_shard(), make_timer("t")
    parked = replace(timer, state=TimerState.FIRING, revision=2)
    shard.take(timer, PAGE)
    shard.park(firing_key(timer), parked)
    assert not shard.is_new(parked)
    shard.settle(firing_key(parked))
    assert shard.is_new(parked)
