from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from duetime.local.together import Together


def echo(events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return list(events)


def test_a_turn_of_the_loop_is_answered_together_in_its_order_and_no_more_than_the_limit_at_once() -> None:
    groups: list[list[int]] = []

    def answer(events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        groups.append([event["n"] for event in events])
        return echo(events)

    async def drive() -> list[dict[str, Any]]:
        together = Together(answer, at_once=4)
        answers = await asyncio.gather(*(together.ask({"n": number}) for number in range(10)))
        answers.append(await together.ask({"n": 10}))
        together.close()
        return answers

    assert [each["n"] for each in asyncio.run(drive())] == list(range(11))
    assert groups == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9], [10]]


def test_a_failure_is_the_answer_to_those_that_it_befell_and_ends_nothing() -> None:
    def answer(events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        if events[0]["is_bad"]:
            raise RuntimeError("broken")
        return echo(events)

    async def drive() -> None:
        together = Together(answer)
        for _ in range(2):
            asked = [together.ask({"is_bad": True}) for _ in range(3)]
            results = await asyncio.gather(*asked, return_exceptions=True)
            assert [str(result) for result in results] == ["broken"] * 3
        assert await together.ask({"is_bad": False}) == {"is_bad": False}
        together.close()

    asyncio.run(drive())


def test_who_gives_up_keeps_the_others_from_nothing() -> None:
    goes_on = threading.Event()

    def answer(events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        assert goes_on.wait(timeout=30)
        return echo(events)

    async def drive() -> None:
        together = Together(answer)
        gone, stays = together.ask({"n": 0}), together.ask({"n": 1})
        gone.cancel()
        goes_on.set()
        assert await stays == {"n": 1}
        with pytest.raises(asyncio.CancelledError):
            await gone
        together.close()

    asyncio.run(drive())


def test_closing_answers_what_was_asked_in_this_very_turn() -> None:
    async def drive() -> dict[str, Any]:
        together = Together(echo)
        asked = together.ask({"n": 1})
        together.close()
        return await asked

    assert asyncio.run(drive()) == {"n": 1}


def test_one_that_was_never_asked_is_closed() -> None:
    Together(echo).close()
