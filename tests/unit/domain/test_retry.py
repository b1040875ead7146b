from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duetime.api.http.responses import encode, retry_policy_response
from duetime.domain.retry import (
    DEFAULT_RETRY_POLICY,
    MAX_RETRY_AFTER_SECONDS,
    RetryPolicy,
    parse_retry_policy,
    policy_in_force,
    read_retry_policy,
)
from duetime.domain.times import MAX_DURATION_SECONDS, MAX_INSTANT
from tests.support.clock import NOW as START

policies = st.builds(
    RetryPolicy,
    max_attempts=st.integers(1, 1000),
    max_attempts_duration_seconds=st.none() | st.floats(0, 1e9),
    initial_interval_seconds=st.floats(0, 3e9),
    backoff_multiplier=st.floats(1, 100),
    max_interval_seconds=st.floats(0, 3e9),
)


def test_intervals_grow_to_their_bound() -> None:
    policy = RetryPolicy(initial_interval_seconds=1, backoff_multiplier=3, max_interval_seconds=20)
    assert [policy.interval_seconds(n) for n in range(1, 6)] == [1, 3, 9, 20, 20]


@given(policies, st.integers(1, 2000), st.floats(0, 1, exclude_max=True), st.none() | st.floats(-1e300, 1e300))
def test_the_next_attempt_never_overflows_nor_lies_in_the_past(
    policy: RetryPolicy, attempts: int, random: float, retry_after: float | None
) -> None:
    at = policy.next_attempt_at(
        attempts=attempts, first_attempt_at=START, now=START, random=random, retry_after_seconds=retry_after
    )
    if attempts >= policy.max_attempts:
        assert at is None
    elif at is not None:
        assert at >= START
        limit = policy.max_attempts_duration_seconds
        assert limit is None or (at - START).total_seconds() <= limit
        longest = max(policy.interval_seconds(attempts) * 1.25, 21_600 if retry_after else 0)
        assert (at - START).total_seconds() <= longest + 0.001


unlimited = policies.map(lambda policy: replace(policy, max_attempts=1000, max_attempts_duration_seconds=None))
below_one = st.floats(0, 1, exclude_max=True)


@given(unlimited, st.integers(1, 999), below_one)
def test_the_wait_is_the_interval_give_or_take_a_quarter(policy: RetryPolicy, attempts: int, random: float) -> None:
    interval = policy.interval_seconds(attempts)
    assert interval <= policy.max_interval_seconds
    assert interval >= min(policy.initial_interval_seconds, policy.max_interval_seconds)
    at = policy.next_attempt_at(attempts=attempts, first_attempt_at=START, now=START, random=random)
    assert at is not None
    wait = (at - START).total_seconds()
    assert interval * 0.75 - 1e-6 <= wait <= interval * 1.25 + 0.001 + 1e-6


@given(unlimited, st.integers(1, 999), below_one, st.floats(-1e300, 1e300))
def test_retry_after_never_shortens_the_wait(
    policy: RetryPolicy, attempts: int, random: float, retry_after: float
) -> None:
    def wait(retry_after: float | None) -> float:
        at = policy.next_attempt_at(
            attempts=attempts, first_attempt_at=START, now=START, random=random, retry_after_seconds=retry_after
        )
        assert at is not None
        return (at - START).total_seconds()

    assert wait(retry_after) >= wait(None)
    assert wait(retry_after) >= min(retry_after, MAX_RETRY_AFTER_SECONDS) - 1e-6  # datetimes hold microseconds
    assert wait(retry_after) <= max(wait(None), MAX_RETRY_AFTER_SECONDS)


@pytest.mark.parametrize("attempts", [1, 2, 999, 1000, 10**9])
def test_the_steepest_policy_does_not_overflow(attempts: int) -> None:
    policy = RetryPolicy(
        max_attempts=1000,
        max_attempts_duration_seconds=None,
        initial_interval_seconds=MAX_DURATION_SECONDS,
        backoff_multiplier=100,
        max_interval_seconds=MAX_DURATION_SECONDS,
    )
    assert policy.interval_seconds(attempts) == MAX_DURATION_SECONDS
    late = MAX_INSTANT - timedelta(days=1)
    assert policy.next_attempt_at(attempts=attempts, first_attempt_at=START, now=late, random=0.99) is None


@given(policies, below_one, st.none() | st.floats(0, 1e6))
def test_every_policy_comes_to_an_end_within_its_attempts_and_its_duration(
    policy: RetryPolicy, random: float, retry_after: float | None
) -> None:
    now, attempts = START, 1
    while True:
        at = policy.next_attempt_at(
            attempts=attempts, first_attempt_at=START, now=now, random=random, retry_after_seconds=retry_after
        )
        if at is None:
            break
        assert at >= now
        now, attempts = at, attempts + 1
    assert attempts <= policy.max_attempts
    limit = policy.max_attempts_duration_seconds
    assert limit is None or (now - START).total_seconds() <= limit


def test_attempts_end_with_the_duration_measured_from_the_first_attempt() -> None:
    policy = RetryPolicy(initial_interval_seconds=10, max_attempts_duration_seconds=60)
    for late, expected in ((40, True), (55, False)):
        now = START + timedelta(seconds=late)
        at = policy.next_attempt_at(attempts=1, first_attempt_at=START, now=now, random=0.5)
        assert (at is not None) is expected


def test_a_policy_is_read_from_json() -> None:
    policy = read_retry_policy(
        '{"maxAttempts": 3, "maxAttemptsDuration": "1h30m", "initialInterval": "PT2S", "backoffMultiplier": 1.5,'
        ' "maxInterval": 60}'
    )
    assert policy == RetryPolicy(
        max_attempts=3,
        max_attempts_duration_seconds=5400,
        initial_interval_seconds=2,
        backoff_multiplier=1.5,
        max_interval_seconds=60,
    )
    assert read_retry_policy(None) is DEFAULT_RETRY_POLICY


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ({"maxAttempts": 0}, "maxAttempts"),
        ({"maxAttempts": 1001}, "maxAttempts"),
        ({"maxAttempts": True}, "maxAttempts"),
        ({"maxAttempts": 1.5}, "maxAttempts"),
        ({"initialInterval": "soon"}, "initialInterval"),
        ({"maxInterval": -1}, "maxInterval"),
        ({"initialInterval": 0}, "initialInterval"),
        ({"initialInterval": "99ms"}, "initialInterval"),
        ({"maxInterval": "0.099"}, "maxInterval"),
        ({"backoffMultiplier": 0.5}, "backoffMultiplier"),
        ({"backoffMultiplier": float("nan")}, "backoffMultiplier"),
        ({"backoffMultiplier": "2"}, "backoffMultiplier"),
        ({"maxRetries": 3}, "maxRetries"),
    ],
)
def test_a_bad_policy_is_refused_by_the_name_of_its_field(value: dict[str, object], field: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # the field is checked below
        parse_retry_policy(value)
    assert caught.value.args[0][0] == field


def test_intervals_have_a_floor() -> None:
    policy = parse_retry_policy({"initialInterval": "100ms", "maxInterval": 0.1})
    assert (policy.initial_interval_seconds, policy.max_interval_seconds) == (0.1, 0.1)


def test_what_was_stored_before_there_was_a_floor_has_it_too() -> None:
    policy = read_retry_policy('{"initialInterval": 0, "maxInterval": "1ms", "maxAttempts": 5}')
    assert (policy.initial_interval_seconds, policy.max_interval_seconds, policy.max_attempts) == (0.1, 0.1, 5)


def test_what_a_policy_omits_is_as_in_its_default() -> None:
    one = RetryPolicy(max_attempts=1)
    assert read_retry_policy(None, default=one) is one
    assert read_retry_policy("{}", default=one) == one
    assert read_retry_policy('{"initialInterval": "5s"}', default=one) == replace(one, initial_interval_seconds=5)
    assert read_retry_policy('{"maxAttempts": 4}', default=one) == RetryPolicy(max_attempts=4)


def test_a_whole_number_may_have_a_fraction_of_zero() -> None:
    """As JSON has it: what a client was told is in force is read so from the store."""
    assert parse_retry_policy({"maxAttempts": 3.0}).max_attempts == 3
    assert read_retry_policy('{"maxAttempts": 3.0}').max_attempts == 3
    with pytest.raises(ValueError, match="maxAttempts"):
        parse_retry_policy({"maxAttempts": 3.5})


@pytest.mark.parametrize("text", ["", "not json", "[]", "7", '{"maxAttempts": 0}'])
def test_a_policy_that_cannot_be_read_is_none(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # any will do
        read_retry_policy(text)
    namespace_policy = RetryPolicy(max_attempts=7)
    assert policy_in_force(text, namespace_policy) is namespace_policy


def test_a_policy_of_its_own_counts_and_takes_nothing_from_the_namespace() -> None:
    namespace_policy = RetryPolicy(max_attempts=7, initial_interval_seconds=9)
    assert policy_in_force(None, namespace_policy) is namespace_policy
    assert policy_in_force('{"initialInterval": "5s"}', namespace_policy) == RetryPolicy(initial_interval_seconds=5)


def test_a_policy_is_shown_whole_and_can_be_read_back() -> None:
    assert json.loads(encode(retry_policy_response(DEFAULT_RETRY_POLICY))) == {
        "maxAttempts": 10,
        "maxAttemptsDuration": "1d",
        "initialInterval": "2s",
        "backoffMultiplier": 2,
        "maxInterval": "1h",
    }
    policy = RetryPolicy(
        max_attempts=3,
        max_attempts_duration_seconds=5400.5,
        initial_interval_seconds=0.25,
        backoff_multiplier=1.5,
        max_interval_seconds=61,
    )
    assert parse_retry_policy(json.loads(encode(retry_policy_response(policy)))) == policy
