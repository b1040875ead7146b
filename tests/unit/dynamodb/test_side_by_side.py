from __future__ import annotations

import threading

import pytest

from duetime.stores.backends.dynamodb.side_by_side import Workers


@pytest.mark.parametrize("count", [1, 4])
def test_results_come_in_order(count: int) -> None:
    workers = Workers(count)
    assert workers.map(lambda number: number * 2, range(20)) == [number * 2 for number in range(20)]
    assert workers.map(str, []) == []
    workers.close()


def test_values_are_worked_on_side_by_side() -> None:
    workers = Workers(2)
    both = threading.Barrier(2, timeout=10)

    assert workers.map(lambda number: both.wait() in (0, 1) and number, [1, 2]) == [1, 2]
    workers.close()


def test_all_are_carried_out_before_the_first_error_is_raised() -> None:
    workers = Workers(4)
    done: list[int] = []

    def act(number: int) -> None:
        if number in (1, 3):
            raise ValueError(number)
        done.append(number)

    with pytest.raises(ValueError, match="1"):
        workers.map(act, range(20))

    assert sorted(done) == [number for number in range(20) if number not in (1, 3)]
    workers.close()


def test_one_in_a_single_thread_is_carried_out_like_many() -> None:
    """With one worker too, an error of one leaves none of the others out."""
    workers = Workers(1)
    done: list[int] = []

    def act(number: int) -> None:
        if number == 0:
            raise ValueError(number)
        done.append(number)

    with pytest.raises(ValueError, match="0"):
        workers.map(act, range(3))

    assert done == [1, 2]


def test_closing_ends_the_threads_and_may_be_repeated() -> None:
    before = set(threading.enumerate())
    workers = Workers(3)
    used = set(workers.map(lambda _: threading.current_thread(), range(9)))
    workers.close()
    workers.close()

    assert used.isdisjoint(before)
    assert not used.intersection(threading.enumerate())
