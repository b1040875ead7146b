from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from duetime.engine.flow.queues import ConcurrencyWindow, TokenBucket


def test_a_window_grows_with_answers_up_to_the_limit_and_halves_with_failures_down_to_one() -> None:
    window = ConcurrencyWindow(16)
    for _ in range(10):
        window.answered(20)
    assert window.size == 20
    sizes = []
    for _ in range(6):
        window.failed()
        sizes.append(window.size)
    assert sizes == [10, 5, 2, 1, 1, 1]


def test_a_bucket_lets_a_burst_of_one_second_through_and_then_the_rate() -> None:
    bucket = TokenBucket(4.0, monotonic=0.0)
    for _ in range(4):
        assert bucket.wait_seconds(0.0) == 0.0
        bucket.take()
    assert bucket.wait_seconds(0.0) == 0.25
    assert bucket.wait_seconds(0.25) == 0.0
    bucket.take()
    assert bucket.wait_seconds(0.25) == 0.25


def test_a_rate_below_one_a_second_has_one_token_at_a_time() -> None:
    bucket = TokenBucket(0.1, monotonic=0.0)
    bucket.take()
    assert bucket.wait_seconds(0.0) == 10.0
    assert bucket.wait_seconds(1000.0) == 0.0
    bucket.take()
    assert bucket.wait_seconds(1000.0) == 10.0


def test_a_changed_rate_counts_from_then_on() -> None:
    bucket = TokenBucket(10.0, monotonic=0.0)
    bucket.change(2.0, monotonic=0.0)
    for _ in range(2):
        bucket.take()
    assert bucket.wait_seconds(0.0) == 0.5


@given(
    st.floats(min_value=0.05, max_value=1000.0),
    st.lists(st.floats(min_value=0.0, max_value=5.0), min_size=1, max_size=50),
)
def test_no_more_is_let_through_than_the_burst_and_the_rate(rate: float, pauses: list[float]) -> None:
    bucket, now, taken = TokenBucket(rate, monotonic=0.0), 0.0, 0
    for pause in pauses:
        now += pause
        while bucket.wait_seconds(now) == 0.0 and taken < 10_000:
            bucket.take()
            taken += 1
    assert taken <= bucket.burst + rate * now + 1e-6 * (1 + taken)
