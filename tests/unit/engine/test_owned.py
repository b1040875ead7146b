from __future__ import annotations

from datetime import timedelta

from duetime.engine.owned import firing_key
from duetime.engine.settings import EngineSettings
from duetime.stores.port import DuePage
from tests.support.engine import make_shard, make_timer
from tests.support.virtual_time import START

SETTINGS = EngineSettings(poll_interval_seconds=0.8, min_poll_interval_seconds=0.1)


def test_a_timer_under_way_is_not_taken_up_again() -> None:
    shard, timer = make_shard(), make_timer("t")
    assert shard.take_new([timer]) == [timer]
    assert shard.take_new([timer]) == []


def test_a_timer_recorded_while_a_read_was_under_way_is_not_taken_up_from_that_page() -> None:
    shard, timer = make_shard(), make_timer("t")
    shard.take_new([timer])
    shard.is_polling = True
    shard.settle(firing_key(timer))
    assert shard.take_new([timer]) == []
    shard.finish_poll(DuePage([]), now=START, monotonic=0.0, settings=SETTINGS)
    assert shard.take_new([timer]) == [timer]


def test_the_next_read_is_at_the_next_due_time_when_that_is_near() -> None:
    shard = make_shard()
    page = DuePage([], next_attempt_at=START + timedelta(milliseconds=30))
    shard.finish_poll(page, now=START, monotonic=5.0, settings=SETTINGS)
    assert shard.poll_at == 5.03


def test_an_idle_shard_backs_off_to_the_poll_interval_and_no_further() -> None:
    shard = make_shard()
    waits = []
    for _ in range(6):
        shard.finish_poll(DuePage([]), now=START, monotonic=0.0, settings=SETTINGS)
        waits.append(round(shard.poll_at, 3))
    assert waits == [0.2, 0.4, 0.8, 0.8, 0.8, 0.8]


def test_a_hint_that_comes_during_a_read_is_not_forgotten() -> None:
    shard = make_shard()
    shard.is_polling = True
    shard.note_due(START + timedelta(milliseconds=10), now=START, monotonic=0.0)
    shard.finish_poll(DuePage([]), now=START, monotonic=0.0, settings=SETTINGS)
    assert shard.poll_at == 0.01


def test_a_failed_read_backs_off_and_starts_over() -> None:
    shard = make_shard()
    shard.cursor = "here"
    waits = []
    for _ in range(8):
        shard.is_polling = True
        shard.fail_poll(monotonic=0.0, random=1.0, settings=SETTINGS)
        waits.append(shard.poll_at)
    assert (shard.cursor, shard.is_polling) == (None, False)
    assert waits[:3] == [0.1, 0.2, 0.4]
    assert waits[-1] == SETTINGS.max_backoff_seconds
