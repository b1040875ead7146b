"""Timers as items: the shapes of the durable-timer design, exactly."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duetime.domain.timers import Failure, FailureReason, Timer, TimerState
from duetime.domain.times import MAX_INSTANT, MIN_INSTANT, round_down
from duetime.stores.dynamodb.items import Unreadable, decode, decode_leniently, encode
from tests.support.builders import make_namespace, make_timer, seconds
from tests.support.clock import NOW

NAMESPACE = make_namespace("user-services", num_shards=1024)


def test_a_new_timer_is_stored_in_the_shape_of_the_design() -> None:
    timer = make_timer(
        NAMESPACE,
        "user-reminder-123",
        execute_at=NOW + seconds(0.5),
        callback_url="https://api.example.com/webhook",
        payload_json='{"userId":"user123"}',
        retry_policy_json='{"maxAttempts":3}',
        firing_id="f-1",
    )

    assert encode(timer) == {
        "shard_id": {"N": str(timer.shard_id)},
        "sortKey": {"S": "TIMER#user-services#user-reminder-123"},
        "row_type": {"S": "TIMER"},
        "timer_execute_at": {"S": "2026-12-20T15:30:00.500Z"},
        "timer_uuid": {"S": str(timer.timer_uuid)},
        "timer_id": {"S": "user-reminder-123"},
        "timer_namespace": {"S": "user-services"},
        "timer_callback_url": {"S": "https://api.example.com/webhook"},
        "timer_payload": {"S": '{"userId":"user123"}'},
        "timer_retry_policy": {"S": '{"maxAttempts":3}'},
        "timer_callback_timeout_seconds": {"N": "30"},
        "timer_created_at": {"S": "2026-12-20T15:30:00.000Z"},
        "timer_updated_at": {"S": "2026-12-20T15:30:00.000Z"},
        "timer_attempts": {"N": "0"},
        "timer_state": {"S": "Scheduled"},
        "timer_revision": {"N": "1"},
        "timer_firing_id": {"S": "f-1"},
        "timer_digest": {"S": timer.digest},
    }


def test_a_finished_timer_leaves_the_index_and_gets_a_time_to_live() -> None:
    timer = replace(
        make_timer(NAMESPACE),
        state=TimerState.FIRED,
        next_attempt_at=None,
        fired_at=NOW,
        expires_at=NOW + seconds(10.001),
    )

    item = encode(timer)

    assert "timer_execute_at" not in item
    assert item["timer_due_at"] == {"S": "2026-12-20T15:30:00.000Z"}
    assert item["timer_expires_at"] == {"S": "2026-12-20T15:30:10.001Z"}
    # Whole seconds, rounded up: TTL never removes a timer that can still be read.
    assert item["expires_at"] == {"N": str(int(NOW.timestamp()) + 11)}


def test_the_due_time_is_stored_apart_only_while_it_is_not_the_index_key() -> None:
    timer = make_timer(NAMESPACE)

    assert "timer_due_at" not in encode(timer)
    waiting = encode(replace(timer, next_attempt_at=NOW + seconds(5)))
    assert (waiting["timer_execute_at"]["S"], waiting["timer_due_at"]["S"]) == (
        "2026-12-20T15:30:05.000Z",
        "2026-12-20T15:30:00.000Z",
    )


_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
_instant = st.datetimes(MIN_INSTANT.replace(tzinfo=None), MAX_INSTANT.replace(tzinfo=None)).map(
    lambda value: round_down(value.replace(tzinfo=MIN_INSTANT.tzinfo))
)


@st.composite
def timers(draw: st.DrawFn) -> Timer:
    new = make_timer(
        NAMESPACE,
        draw(st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="/"), min_size=1)),
        execute_at=draw(_instant),
        payload_json=draw(st.none() | _text.map(json.dumps)),
        headers_json=draw(st.none() | st.dictionaries(_text, _text, max_size=3).map(json.dumps)),
        retry_policy_json=draw(st.none() | st.just('{"maxAttempts": 3}')),
        correlation_id=draw(st.none() | _text.filter(bool)),
        tags=tuple(draw(st.lists(_text, max_size=3))),
    )
    return replace(
        new,
        state=draw(st.sampled_from(TimerState)),
        attempts=draw(st.integers(0, 1000)),
        revision=draw(st.integers(1, 2**60)),
        next_attempt_at=draw(st.none() | _instant),
        fired_at=draw(st.none() | _instant),
        expires_at=draw(st.none() | _instant),
        failure=draw(
            st.none()
            | st.builds(Failure, st.sampled_from(FailureReason), _text, _instant, st.none() | st.integers(100, 599))
        ),
    )


def _numbers(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["N"]] if isinstance(value.get("N"), str) else []
        return own + [number for part in value.values() for number in _numbers(part)]
    return [number for part in value for number in _numbers(part)] if isinstance(value, list) else []


@given(timers())
def test_a_timer_comes_back_as_it_was_and_no_number_is_ever_a_float(timer: Timer) -> None:
    item = encode(timer)

    assert decode(item) == timer
    assert all(number.isdigit() for number in _numbers(item))


BROKEN: dict[str, dict[str, Any]] = {
    "no callback": {"timer_callback_url": None},
    "no due time": {"timer_execute_at": None},
    "a state that does not exist": {"timer_state": {"S": "nonsense"}},
    "a revision that is not whole": {"timer_revision": {"N": "1.5"}},
    "a revision of another type": {"timer_revision": {"S": "1"}},
    "a time without an offset": {"timer_created_at": {"S": "2026-12-20T15:30:00"}},
    "a due time that is no time": {"timer_execute_at": {"S": "1999"}},
    "a payload of another type": {"timer_payload": {"M": {}}},
    "tags of another type": {"timer_tags": {"SS": ["x"]}},
    "a failure that is not JSON": {"timer_failure": {"S": "{"}},
    "a failure that is no object": {"timer_failure": {"S": "[]"}},
    "the id of another timer": {"timer_id": {"S": "other"}},
    "the UUID of another timer": {"timer_uuid": {"S": "00000000-0000-0000-0000-000000000000"}},
    "a payload that is gone": {"timer_payload": None, "timer_payload_key": {"S": "PAYLOAD#1"}},
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_item_is_unreadable_and_reads_leniently_as_failed(kind: str) -> None:
    timer = make_timer(NAMESPACE, "a#b", payload_json="{}", tags=("x",), correlation_id="c")
    item = {**encode(timer), **BROKEN[kind]}
    item = {name: value for name, value in item.items() if value is not None}

    with pytest.raises(Unreadable):
        decode(item)

    shown = decode_leniently(item)
    assert (shown.namespace, shown.timer_id, shown.shard_id) == (timer.namespace, "a#b", timer.shard_id)
    assert shown.state is TimerState.FAILED
    assert shown.next_attempt_at is None
    assert shown.failure is not None
    assert shown.failure.reason is FailureReason.UNREADABLE
    assert shown.failure.message
    assert shown.content.correlation_id == "c"


def test_unknown_attributes_are_no_obstacle() -> None:
    timer = make_timer(NAMESPACE)

    assert decode({**encode(timer), "timer_of_the_future": {"BOOL": True}}) == timer


def test_time_to_live_at_a_whole_second_is_that_second() -> None:
    timer = replace(make_timer(NAMESPACE), next_attempt_at=None, expires_at=NOW + timedelta(days=7))

    assert encode(timer)["expires_at"] == {"N": str(int(NOW.timestamp()) + 7 * 86_400)}
