from __future__ import annotations

from datetime import datetime, timedelta

from duetime.domain.timers import Timer
from duetime.engine.backlog import Reading
from duetime.engine.keys import LaneKey, firing_key, lane_key
from duetime.engine.owned import Offered, OwnedShard, ReadCost
from duetime.engine.settings import EngineSettings
from duetime.stores.port import DuePage
from tests.support.engine import make_shard, make_timer
from tests.support.virtual_time import START

SETTINGS = EngineSettings(poll_interval_seconds=0.8, min_poll_interval_seconds=0.1)


def finish(
    shard: OwnedShard,
    page: DuePage,
    reading: Reading = Reading.NEWS,
    *,
    refused: list[Timer] | None = None,
    accepted: int = 0,
    monotonic: float = 0.0,
    at: datetime = START,
) -> None:
    """End a read of ``reading``, due ``at`` and taking no time; the lanes of ``refused`` had no room for them."""
    shard.finish_poll(
        shard.page_request(reading, at, monotonic),
        page,
        until=at,
        offered=Offered(accepted, {lane_key(timer): timer.next_attempt_at or START for timer in refused or []}),
        cost=ReadCost(),
        now=at,
        monotonic=monotonic,
        settings=SETTINGS,
    )


def everyone(key: LaneKey, monotonic: float) -> bool:
    del key, monotonic
    return True


def nobody(key: LaneKey, monotonic: float) -> bool:
    return not everyone(key, monotonic)


def test_a_timer_under_way_is_not_taken_up_again() -> None:
    shard, timer = make_shard(), make_timer("t")
    assert shard.is_new(timer)
    shard.take(timer)
    assert not shard.is_new(timer)


def test_a_timer_recorded_while_a_read_was_under_way_is_not_taken_up_from_that_page() -> None:
    shard, timer = make_shard(), make_timer("t")
    shard.take(timer)
    shard.is_polling = True
    shard.settle(firing_key(timer))
    assert not shard.is_new(timer)
    finish(shard, DuePage([]))
    assert shard.is_new(timer)


def test_the_next_read_is_at_the_next_due_time_when_that_is_near() -> None:
    shard = make_shard()
    page = DuePage([], next_attempt_at=START + timedelta(milliseconds=30))
    finish(shard, page, monotonic=5.0)
    assert shard.poll_at == 5.03


def test_an_idle_shard_backs_off_to_the_poll_interval_and_no_further() -> None:
    shard, monotonic = make_shard(), 0.0
    waits = []
    for _ in range(6):
        finish(shard, DuePage([]), monotonic=monotonic)
        waits.append(round(shard.poll_at - monotonic, 3))
        monotonic = shard.poll_at
    assert waits == [0.2, 0.4, 0.8, 0.8, 0.8, 0.8]


def test_a_hint_that_comes_during_a_read_is_not_forgotten() -> None:
    shard = make_shard()
    shard.is_polling = True
    shard.note_due(START + timedelta(milliseconds=10), now=START, monotonic=0.0)
    finish(shard, DuePage([]))
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


def test_between_full_reads_only_what_has_become_due_since_is_read() -> None:
    shard, soon = make_shard(), START + timedelta(milliseconds=30)
    assert shard.page_request(Reading.NEWS, START, 0.0).since is None
    finish(shard, DuePage([make_timer("t")], next_attempt_at=soon))
    assert shard.poll_at == 0.03
    assert shard.page_request(Reading.NEWS, soon, 0.03).since == START
    finish(shard, DuePage([]), at=soon, monotonic=0.03)
    assert shard.poll_at == SETTINGS.min_poll_interval_seconds
    assert shard.page_request(Reading.NEWS, START + timedelta(seconds=1), shard.poll_at).since is None


def test_a_hint_about_the_past_is_followed_back() -> None:
    shard, past = make_shard(), START - timedelta(seconds=5)
    finish(shard, DuePage([make_timer("t")]))
    shard.note_due(past, now=START, monotonic=0.01)
    assert shard.poll_at == 0.01
    assert shard.page_request(Reading.NEWS, START, 0.01).since == past


def test_a_pass_of_several_pages_stays_what_it_was() -> None:
    shard = make_shard()
    finish(shard, DuePage([make_timer("t")], cursor="page"))
    shard.full_read_at = 60.0
    finish(shard, DuePage([make_timer("u")]), monotonic=0.5)
    assert shard.full_read_at == 0.5 + SETTINGS.min_poll_interval_seconds


# -- with a backlog -------------------------------------------------------------------------------------------------


def test_a_refused_timer_begins_a_backlog_that_is_swept_from_its_page_on() -> None:
    shard, timer = make_shard(), make_timer("t")
    shard.cursor = "page"
    finish(shard, DuePage([timer], cursor="after"), refused=[timer])

    assert shard.backlog is not None
    assert shard.plan(0.0, everyone) == (Reading.SWEEP, 0.0)
    assert shard.page_request(Reading.SWEEP, START, 0.0).cursor == "page"
    assert shard.page_request(Reading.DISCOVERY, START, 0.0).cursor == "after"


def test_with_a_backlog_news_are_read_from_where_it_began() -> None:
    shard, timer = make_shard(), make_timer("t")
    finish(shard, DuePage([timer], cursor="after"), refused=[timer])
    request = shard.page_request(Reading.NEWS, START + timedelta(seconds=1), 1.0)
    assert (request.cursor, request.since) == (None, START)

    later = START + timedelta(seconds=10)
    finish(shard, DuePage([]), at=later, monotonic=10.0)
    assert shard.page_request(Reading.NEWS, later, 10.05).since == later
    assert shard.page_request(Reading.NEWS, later, 11.0).since == later - timedelta(seconds=2)


def test_nothing_is_swept_while_nobody_wants_more() -> None:
    shard, timer = make_shard(), make_timer("t")
    finish(shard, DuePage([timer], cursor="after"), refused=[timer])
    finish(shard, DuePage([], cursor=None), Reading.DISCOVERY)
    reading, at = shard.plan(0.0, nobody)
    assert reading is None
    assert 0.0 < at <= SETTINGS.poll_interval_seconds


def test_a_lane_with_older_timers_in_the_store_gets_them_first() -> None:
    shard, timer = make_shard(), make_timer("t")
    finish(shard, DuePage([timer], cursor="after"), refused=[timer])
    assert shard.backlog is not None
    mine, other = lane_key(timer), ("another", "http://receiver.test")
    assert [shard.backlog.may_offer(mine, reading) for reading in Reading] == [False, True, False]
    assert [shard.backlog.may_offer(other, reading) for reading in Reading] == [True, True, True]


def test_the_backlog_ends_with_a_lap_in_which_nothing_was_refused() -> None:
    shard, timer = make_shard(), make_timer("t")
    finish(shard, DuePage([timer], cursor="after"), refused=[timer])
    finish(shard, DuePage([timer], cursor="more"), Reading.SWEEP, accepted=1)
    assert shard.backlog is not None
    finish(shard, DuePage([timer]), Reading.SWEEP, accepted=1, monotonic=3.0)
    assert shard.backlog is None
    assert (shard.cursor, shard.poll_at) == (None, 3.0)


def test_a_refusal_in_the_lap_or_behind_it_makes_another_lap() -> None:
    shard, early, late = make_shard(), make_timer("t"), make_timer("u", execute_at=START + timedelta(seconds=5))
    finish(shard, DuePage([early], cursor="after"), refused=[early])
    finish(shard, DuePage([early], cursor="more"), Reading.SWEEP, accepted=1)
    finish(shard, DuePage([early]), Reading.DISCOVERY, refused=[early])  # at the place that the sweep has passed
    finish(shard, DuePage([late]), Reading.SWEEP, accepted=1)
    assert shard.backlog is not None
    assert list(shard.backlog.deferred) == [lane_key(early)]
    assert shard.page_request(Reading.SWEEP, START, 0.0).cursor is None


def test_a_refusal_ahead_of_the_sweep_needs_no_other_lap() -> None:
    shard, early, late = make_shard(), make_timer("t"), make_timer("u", execute_at=START + timedelta(seconds=5))
    finish(shard, DuePage([early], cursor="after"), refused=[early])
    finish(shard, DuePage([early], cursor="more"), Reading.SWEEP, accepted=1)
    finish(shard, DuePage([late]), refused=[late], at=START + timedelta(seconds=5))
    finish(shard, DuePage([late]), Reading.SWEEP, accepted=1)
    assert shard.backlog is None


def test_a_sweep_that_finds_nothing_to_take_pauses() -> None:
    shard, timer = make_shard(), make_timer("t")
    finish(shard, DuePage([timer], cursor="after"), refused=[timer])
    shard.poll_at = 60.0
    finish(shard, DuePage([timer]), Reading.DISCOVERY)
    finish(shard, DuePage([timer], cursor="more"), Reading.SWEEP)
    assert shard.plan(0.0, everyone) == (None, 0.01)
    finish(shard, DuePage([timer]), Reading.SWEEP, refused=[timer])
    assert shard.plan(0.0, everyone) == (None, 0.1)


def test_a_page_that_was_not_taken_whole_is_swept_again_for_the_same_lane() -> None:
    shard, timer = make_shard(), make_timer("t")
    shard.cursor = "page"
    finish(shard, DuePage([timer], cursor="after"), refused=[timer])
    shard.poll_at = 60.0
    finish(shard, DuePage([timer], cursor="after"), Reading.SWEEP, accepted=1, refused=[timer])
    assert shard.plan(0.0, everyone) == (Reading.SWEEP, 0.0)
    assert shard.page_request(Reading.SWEEP, START, 0.0).cursor == "page"
    finish(shard, DuePage([timer], cursor="after"), Reading.SWEEP, accepted=1)
    assert shard.plan(0.0, everyone) == (Reading.SWEEP, 0.0)
    assert shard.page_request(Reading.SWEEP, START, 0.0).cursor == "after"


def test_a_page_that_was_not_taken_whole_is_passed_over_for_another_lane() -> None:
    shard, timer, other = make_shard(), make_timer("t"), make_timer("u", namespace="another")
    finish(shard, DuePage([timer, other], cursor="after"), refused=[timer, other])
    shard.poll_at = 60.0
    finish(shard, DuePage([timer], cursor="after"), Reading.SWEEP, accepted=1, refused=[timer])
    assert shard.plan(0.0, everyone) == (Reading.SWEEP, 0.0)
    assert shard.page_request(Reading.SWEEP, START, 0.0).cursor == "after"
    finish(shard, DuePage([other]), Reading.SWEEP, accepted=1)
    assert shard.backlog is not None
    assert list(shard.backlog.deferred) == [lane_key(timer)]


def test_a_timer_that_waited_too_long_is_read_again() -> None:
    shard, timer = make_shard(), make_timer("t")
    shard.poll_at = 60.0
    shard.defer(lane_key(timer), timer, monotonic=4.0)
    assert shard.poll_at == 4.0

    finish(shard, DuePage([timer], cursor="after"), refused=[timer])
    finish(shard, DuePage([timer], cursor="more"), Reading.SWEEP, accepted=1)
    shard.defer(lane_key(timer), timer, monotonic=5.0)
    finish(shard, DuePage([timer]), Reading.SWEEP, accepted=1)
    assert shard.backlog is not None
    assert list(shard.backlog.deferred) == [lane_key(timer)]
