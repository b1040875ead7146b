from __future__ import annotations

import pytest

from duetime.engine.flow.queues import BreakerState, CircuitBreaker


def make_breaker() -> CircuitBreaker:
    return CircuitBreaker(failures=3, pause_seconds=5.0, max_pause_seconds=30.0)


def fail(breaker: CircuitBreaker, at: float, *, started: float | None = None, random: float = 0.5) -> bool:
    return breaker.failed(started=at if started is None else started, is_answered=False, monotonic=at, random=random)


def test_it_opens_after_so_many_failures_in_a_row() -> None:
    breaker = make_breaker()
    assert [fail(breaker, 1.0), fail(breaker, 1.0)] == [False, False]
    assert breaker.state(1.0) is BreakerState.CLOSED
    assert fail(breaker, 1.0)
    assert breaker.state(1.0) is BreakerState.OPEN
    assert breaker.state(5.999) is BreakerState.OPEN
    assert breaker.state(6.0) is BreakerState.HALF_OPEN


def test_an_answer_in_between_starts_the_count_afresh() -> None:
    breaker = make_breaker()
    for _ in range(10):
        assert not fail(breaker, 1.0)
        assert not fail(breaker, 1.0)
        assert not breaker.succeeded()
    assert breaker.state(1.0) is BreakerState.CLOSED


def test_a_probe_that_is_answered_closes_it() -> None:
    breaker = make_breaker()
    for _ in range(3):
        fail(breaker, 0.0)
    assert breaker.succeeded()
    assert breaker.state(0.0) is BreakerState.CLOSED
    assert not fail(breaker, 0.0)


def test_each_probe_that_fails_doubles_the_pause_up_to_the_longest() -> None:
    breaker = make_breaker()
    for _ in range(3):
        fail(breaker, 0.0)
    now, pauses = 5.0, []
    for _ in range(40):
        assert fail(breaker, now)
        assert breaker.open_until is not None
        pauses.append(breaker.open_until - now)
        now = breaker.open_until
    assert pauses[:3] == [10.0, 20.0, 30.0]
    assert set(pauses[3:]) == {30.0}


def test_what_was_started_before_it_opened_does_not_prolong_the_pause() -> None:
    breaker = make_breaker()
    for _ in range(3):
        fail(breaker, 0.0)
    assert not fail(breaker, 2.0, started=-1.0)
    assert not fail(breaker, 7.0, started=-1.0)
    assert breaker.open_until == 5.0


@pytest.mark.parametrize(("random", "pause"), [(0.0, 4.0), (0.5, 5.0), (1.0, 6.0)])
def test_the_pause_is_spread(random: float, pause: float) -> None:
    breaker = make_breaker()
    for _ in range(3):
        fail(breaker, 0.0, random=random)
    assert breaker.open_until == pytest.approx(pause)


def test_answers_of_a_gateway_open_it_only_when_they_go_on_for_a_second() -> None:
    breaker = make_breaker()

    def answer(at: float) -> bool:
        return breaker.failed(started=at, is_answered=True, monotonic=at, random=0.5)

    assert [answer(7.0) for _ in range(50)] == [False] * 50
    assert not answer(7.999)
    assert answer(8.0)
    breaker.succeeded()
    assert [answer(8.1) for _ in range(50)] == [False] * 50


def test_once_it_was_answered_pauses_are_short_again() -> None:
    breaker = make_breaker()
    for at in (0.0, 0.0, 0.0, 5.0):
        fail(breaker, at)
    assert breaker.open_until == 15.0
    breaker.succeeded()
    for _ in range(3):
        fail(breaker, 20.0)
    assert breaker.open_until == 25.0
