from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from duetime.domain.errors import StoreError, StoreUnavailable
from duetime.engine.batching import Batcher, Gathering, Partitions
from duetime.engine.settings import EngineSettings
from duetime.engine.stats import EngineStats
from duetime.testing.virtual_time import InlineOffload, VirtualClock, run_virtually
from tests.support.clock import NOW
from tests.support.engine import make_context

AT_ONCE = Gathering(batch_size=3, linger_seconds=0.0)


@dataclass
class Work:
    """A batcher of numbers whose result is their square, and what it told."""

    write: Callable[[Sequence[int]], Sequence[int]] = lambda items: [item * item for item in items]
    settings: EngineSettings = field(default_factory=lambda: EngineSettings(record_batch_size=3))
    gathering: Gathering | None = None
    wanted: Callable[[int], bool] = lambda item: True
    put_off: Callable[[int], bool] = lambda result: False
    written: list[tuple[float, list[int], list[int]]] = field(default_factory=list)
    stats: EngineStats = field(default_factory=EngineStats)
    refused: list[tuple[int, str]] = field(default_factory=list)
    given_up: list[int] = field(default_factory=list)
    clock: VirtualClock = field(default_factory=lambda: VirtualClock(NOW))

    def run(self, script: Callable[[Batcher[int, int]], object]) -> Batcher[int, int]:
        """``script`` is a coroutine function; the batcher is cancelled when it ends."""
        batcher: Batcher[int, int] = Batcher(
            self.write,
            make_context(self.clock, settings=self.settings, stats=self.stats),
            InlineOffload(),
            action="record.retried",
            on_written=lambda items, results: self.written.append((self.clock.monotonic(), [*items], [*results])),
            on_refused=lambda item, error: self.refused.append((item, str(error))),
            on_given_up=self.given_up.extend,
            is_wanted=self.wanted,
            partitions=Partitions(self.put_off, lambda item: item % 10),
            gathering=self.gathering,
        )

        async def main() -> None:
            task = asyncio.create_task(batcher.run())
            await script(batcher)  # type: ignore[misc]
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await asyncio.sleep(0)

        run_virtually(self.clock, main())
        return batcher

    @property
    def results(self) -> list[int]:
        return [result for _, _, results in self.written for result in results]


def test_items_gather_for_a_moment() -> None:
    work = Work()

    async def script(batcher: Batcher[int, int]) -> None:
        batcher.add(1)
        await asyncio.sleep(0.02)
        batcher.add(2)
        assert batcher.backlog == 2
        await asyncio.sleep(1)
        assert batcher.backlog == 0

    work.run(script)
    ((at, items, results),) = work.written
    assert (items, results) == ([1, 2], [1, 4])
    assert 0.05 <= at < 0.06


def test_a_full_batch_does_not_wait() -> None:
    work = Work()

    async def script(batcher: Batcher[int, int]) -> None:
        for item in range(7):
            batcher.add(item)
        await asyncio.sleep(1)

    work.run(script)
    assert [items for _, items, _ in work.written] == [[0, 1, 2], [3, 4, 5], [6]]
    assert [at < 0.05 for at, _, _ in work.written[:2]] == [True, True]


def test_without_lingering_an_item_is_written_at_once() -> None:
    work = Work(gathering=AT_ONCE)

    async def script(batcher: Batcher[int, int]) -> None:
        batcher.add(2)
        await asyncio.sleep(0.001)
        assert work.results == [4]

    work.run(script)


def test_a_store_error_is_tried_again_with_back_off_until_it_is_over() -> None:
    tries: list[float] = []
    work = Work()

    def write(items: Sequence[int]) -> Sequence[int]:
        tries.append(work.clock.monotonic())
        if len(tries) < 5:
            raise StoreUnavailable("down")
        return list(items)

    work.write = write

    async def script(batcher: Batcher[int, int]) -> None:
        batcher.add(7)
        await asyncio.sleep(60)

    work.run(script)
    assert work.results == [7]
    assert work.stats.record_errors == 4
    waits = [later - earlier for earlier, later in itertools.pairwise(tries)]
    assert waits == pytest.approx([0.075, 0.15, 0.3, 0.6], abs=0.001)


def test_what_is_no_longer_wanted_is_given_up_before_it_is_written() -> None:
    unwanted = {2}
    work = Work(wanted=lambda item: item not in unwanted)

    def write(items: Sequence[int]) -> Sequence[int]:
        if 4 not in unwanted:
            unwanted.add(4)
            raise StoreUnavailable("down")
        return list(items)

    work.write = write
    work.settings = EngineSettings(record_batch_size=10)

    async def script(batcher: Batcher[int, int]) -> None:
        for item in (1, 2, 3, 4):
            batcher.add(item)
        await asyncio.sleep(5)

    batcher = work.run(script)
    assert work.results == [1, 3]
    assert work.given_up == [2, 4]
    assert batcher.backlog == 0


def test_a_batch_that_nobody_wants_is_not_written() -> None:
    def write(items: Sequence[int]) -> Sequence[int]:
        raise AssertionError

    work = Work(write=write, wanted=lambda item: False)

    async def script(batcher: Batcher[int, int]) -> None:
        batcher.add(1)
        await asyncio.sleep(1)

    assert work.run(script).backlog == 0
    assert (work.written, work.given_up) == ([], [1])


def test_at_the_end_what_is_left_is_given_up() -> None:
    work = Work()

    def write(items: Sequence[int]) -> Sequence[int]:
        raise StoreUnavailable("down")

    work.write = write

    async def script(batcher: Batcher[int, int]) -> None:
        batcher.add(1)
        await asyncio.sleep(1)
        batcher.add(2)

    assert work.run(script).backlog == 0
    assert sorted(work.given_up) == [1, 2]


@pytest.mark.parametrize("error", [StoreError("no"), KeyError("bug")])
def test_what_is_refused_is_found_by_halves_and_the_others_are_written_once(error: Exception) -> None:
    calls: list[int] = []

    def write(items: Sequence[int]) -> Sequence[int]:
        calls.append(len(items))
        if {13, 77} & set(items):
            raise error
        return list(items)

    work = Work(write=write, settings=EngineSettings(record_batch_size=100))

    async def script(batcher: Batcher[int, int]) -> None:
        for item in range(100):
            batcher.add(item)
        await asyncio.sleep(1)
        assert batcher.backlog == 0

    work.run(script)
    assert work.results == [item for item in range(100) if item not in (13, 77)]
    assert work.refused == [(13, str(error)), (77, str(error))]
    assert (work.given_up, work.stats.record_errors) == ([], 0)
    assert len(calls) < 30


def test_a_store_that_goes_away_while_a_batch_is_halved_is_waited_for() -> None:
    work = Work(settings=EngineSettings(record_batch_size=4))
    down = iter([False, True, True])

    def write(items: Sequence[int]) -> Sequence[int]:
        if next(down, False):
            raise StoreUnavailable("down")
        if 3 in items:
            raise StoreError("no")
        return list(items)

    work.write = write

    async def script(batcher: Batcher[int, int]) -> None:
        for item in range(4):
            batcher.add(item)
        await asyncio.sleep(5)

    assert work.run(script).backlog == 0
    assert (work.results, [item for item, _ in work.refused]) == ([0, 1, 2], [3])
    assert work.stats.record_errors == 2


def test_a_stop_while_a_batch_is_halved_gives_up_what_is_left() -> None:
    work = Work(settings=EngineSettings(record_batch_size=4))

    def write(items: Sequence[int]) -> Sequence[int]:
        if len(items) == 4:
            raise StoreError("no")
        if 2 in items:
            raise StoreUnavailable("down")
        return list(items)

    work.write = write

    async def script(batcher: Batcher[int, int]) -> None:
        for item in range(4):
            batcher.add(item)
        await asyncio.sleep(1)

    assert work.run(script).backlog == 0
    assert (work.results, work.given_up, work.refused) == ([0, 1], [2, 3], [])


# -- some are put off: their partition takes nothing for now -------------------------------------------------------


def busy_until(seconds: float, work: Work) -> Callable[[Sequence[int]], Sequence[int]]:
    """Numbers that end in 7 are put off, which the result -1 says."""
    return lambda items: [
        -1 if item % 10 == 7 and work.clock.monotonic() < seconds else item * item for item in items
    ]


def test_what_is_put_off_waits_with_its_kind_and_holds_up_nobody() -> None:
    work = Work(gathering=AT_ONCE, put_off=lambda result: result == -1)
    tries: list[tuple[float, list[int]]] = []
    write = busy_until(2.0, work)

    def noted(items: Sequence[int]) -> Sequence[int]:
        tries.append((work.clock.monotonic(), [*items]))
        return write(items)

    work.write = noted

    async def script(batcher: Batcher[int, int]) -> None:
        batcher.add(7)
        batcher.add(1)
        await asyncio.sleep(0.01)
        assert batcher.is_held_up(7)
        assert not batcher.is_held_up(1)
        batcher.add(17)
        batcher.add(2)
        await asyncio.sleep(0.01)
        assert work.results == [1, 4]
        assert batcher.backlog == 2
        await asyncio.sleep(20)
        assert not batcher.is_held_up(7)
        batcher.add(27)
        await asyncio.sleep(0.1)

    batcher = work.run(script)
    assert work.results == [1, 4, 49, 289, 729]
    assert batcher.backlog == 0
    assert (work.stats.record_errors, work.refused, work.given_up) == (0, [], [])
    pauses = [at for at, items in tries if 7 in items]
    assert 4 < len(pauses) < 9, "ever later"
    assert pauses == sorted(pauses)


def test_what_waits_is_tried_at_once_when_the_store_is_back_and_given_up_at_the_end() -> None:
    work = Work(gathering=AT_ONCE, put_off=lambda result: result == -1)
    work.write = busy_until(1000.0, work)

    async def script(batcher: Batcher[int, int]) -> None:
        batcher.add(7)
        await asyncio.sleep(900)
        batcher.add(17)
        batcher.retry()
        await asyncio.sleep(0.01)
        assert batcher.backlog == 2

    batcher = work.run(script)
    assert sorted(work.given_up) == [7, 17]
    assert batcher.backlog == 0
