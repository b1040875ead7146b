from __future__ import annotations

import sys

import pytest

from duetime.domain.timers import Timer
from duetime.engine.in_flight import HeldPayloads, payload_bytes
from duetime.engine.keys import firing_key
from tests.support.engine import make_timer

LARGE = f'"{"x" * 10_000}"'
SIZE = sys.getsizeof(LARGE)


def large(timer_id: str, namespace: str = "default") -> Timer:
    return make_timer(timer_id, namespace=namespace, payload_json=LARGE)


def hold(held: HeldPayloads, count: int, namespace: str) -> list[Timer]:
    timers = [large(f"{namespace}{n}", namespace) for n in range(count)]
    for timer in timers:
        assert held.accepts(timer)
        held.add(timer)
    return timers


@pytest.mark.parametrize("payload", [None, "1", f'"{"x" * 4000}"', f'"{"ü" * 1000}"', f'"{"x" * 990}\U0001f600"'])
def test_small_payloads_are_not_counted(payload: str | None) -> None:
    assert payload_bytes(make_timer("t", payload_json=payload)) == 0


def test_a_payload_counts_what_it_takes_in_memory() -> None:
    """One character beyond the basic plane makes all take four bytes."""
    payload = f'"{"x" * 2000}\U0001f600"'
    assert payload_bytes(make_timer("t", payload_json=payload)) == sys.getsizeof(payload) > 8000


def test_small_ones_are_accepted_however_much_is_held() -> None:
    held = HeldPayloads(SIZE)
    hold(held, 1, "a")
    assert held.accepts(make_timer("t", payload_json="1"))
    assert held.accepts(make_timer("t"))


def test_whoever_comes_first_has_it_all() -> None:
    held = HeldPayloads(4 * SIZE)
    hold(held, 4, "a")
    assert not held.accepts(large("one more", "a"))


def test_others_have_their_share_all_the_same_and_one_at_least() -> None:
    held = HeldPayloads(4 * SIZE)
    hold(held, 4, "a")
    hold(held, 2, "b")
    assert not held.accepts(large("one more", "b"))
    hold(held, 1, "c")
    assert not held.accepts(large("one more", "c"))


def test_twice_as_much_is_the_end() -> None:
    held = HeldPayloads(2 * SIZE)
    for namespace in "abcd":
        hold(held, 1, namespace)
    assert held.bytes == 4 * SIZE
    assert not held.accepts(large("t", "e"))
    assert not held.wants("e")


def test_a_payload_larger_than_the_bound_is_taken_alone() -> None:
    held = HeldPayloads(10)
    hold(held, 1, "a")
    assert not held.accepts(large("t", "b"))


def test_what_is_settled_makes_room() -> None:
    held = HeldPayloads(2 * SIZE)
    first, second = hold(held, 2, "a")
    held.remove(firing_key(first))
    held.remove(firing_key(first))  # a second time, or never taken: nothing
    assert held.bytes == SIZE
    hold(held, 1, "a")
    held.remove(firing_key(second))
    held.add(second)
    held.add(second)  # taken up again by another owner of its shard
    assert held.bytes == 2 * SIZE


def test_more_is_wanted_when_half_is_free() -> None:
    held = HeldPayloads(4 * SIZE)
    timers = hold(held, 4, "a")
    assert not held.wants("a")
    assert held.wants("b")
    held.remove(firing_key(timers[0]))
    assert not held.wants("a")
    held.remove(firing_key(timers[1]))
    assert held.wants("a")


def test_what_is_reserved_counts_until_it_is_known_and_whoever_had_no_room_is_told() -> None:
    held = HeldPayloads(2 * SIZE)
    told: list[str] = []
    hold(held, 1, "a")

    assert held.reserve(5, SIZE, lambda: told.append("first")) == 3
    assert held.reserve(5, SIZE, lambda: told.append("second")) == 0
    assert not held.accepts(large("t", "b"))
    assert told == []
    held.release(3 * SIZE)

    assert told == ["second"]
    assert held.accepts(large("t", "b"))
    assert held.reserve(1, SIZE, lambda: told.append("third")) == 1
    held.release(SIZE)
    assert told == ["second"]


def test_one_body_is_read_however_large_it_may_be() -> None:
    held = HeldPayloads(10)

    assert held.reserve(5, SIZE, lambda: None) == 1
    assert held.reserve(5, SIZE, lambda: None) == 0
    assert not held.accepts(large("t", "a"))
