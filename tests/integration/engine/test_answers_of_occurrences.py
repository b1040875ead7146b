"""Occurrences of schedules that wait in virtual time, as ``test_answers`` has it of timers."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

import pytest

from duetime.domain.ids import backfill_timer_id, occurrence_timer_id
from duetime.domain.occurrences import OccurrenceState
from duetime.domain.schedules import Overlap, SchedulePolicy
from duetime.domain.times import format_instant
from duetime.stores.core.store import Store
from duetime.testing.virtual_time import VirtualClock
from tests.integration.engine.test_answers import PUBLIC_URL, Life, taken
from tests.integration.engine.test_schedules import lines, make_schedule
from tests.support.clock import NOW as START
from tests.support.engine import at, put, stored
from tests.support.http import Answer
from tests.support.scripted_sender import Script


def test_an_occurrence_that_waits_does_not_delay_its_schedule(store: Store, clock: VirtualClock) -> None:
    put(store, [make_schedule()], START)
    life = Life(store, clock, taken(), taken("5s"))

    async def script() -> None:
        await asyncio.sleep(41)
        url = urlsplit(str(life.sender.received[0]["ackUrl"]).removeprefix(PUBLIC_URL))
        assert url.path.startswith("/v1/namespaces/default/schedules/s1/firings/")
        assert life.api.call("POST", url.path, query=url.query).json()["outcome"] == "Fired"
        await asyncio.sleep(2)
        assert life.api.call("POST", url.path, query=url.query).status == 200, "again, it changes nothing"

    life.run(script)

    first = stored(store, occurrence_timer_id("s1", at(10)), clock)
    assert (first.state, first.attempts) == ("Fired", 1)
    assert lines(store, clock) == [(each, OccurrenceState.FIRED) for each in (10, 20, 30, 40)]
    scheduled = [str(body["scheduledAt"])[17:19] for body in life.sender.received]
    assert len(scheduled) == 5, "the second one was silent, and came again"


@pytest.mark.parametrize("is_ended", [True, False], ids=["ended", "waiting"])
def test_an_answer_to_a_backfill_is_none_to_its_occurrence(store: Store, clock: VirtualClock, is_ended: bool) -> None:
    """Both have the same webhook-id, and so has the same backfill once more."""
    put(store, [make_schedule()], START)
    life = Life(store, clock, taken())
    backfill = {"from": format_instant(at(5)), "to": format_instant(at(20))}

    def answer(place: int) -> Answer:
        url = urlsplit(str(life.sender.received[place]["ackUrl"]).removeprefix(PUBLIC_URL))
        return life.api.call("POST", url.path, query=url.query)

    async def script() -> None:
        await asyncio.sleep(11)
        assert not is_ended or answer(0).status == 200
        await asyncio.sleep(1)
        path = f"{life.open_api.timers.removesuffix('timers')}schedules/s1/backfill"
        for place in (1, 2):
            life.scripts.append(taken("1m"))
            assert life.open_api.call("POST", path, backfill).json()["created"] == 1
            await asyncio.sleep(1)
            assert answer(place).json()["outcome"] == "Fired"
            assert place == 1 or answer(1).code == "firing_over"
            await asyncio.sleep(1)
            assert stored(store, backfill_timer_id("s1", at(10)), clock).state == "Fired"
            assert answer(place).json()["outcome"] == "Fired", "again, it changes nothing"
        assert len(set(life.sender.webhook_ids)) == 1
        assert stored(store, occurrence_timer_id("s1", at(10)), clock).state == ("Fired" if is_ended else "Waiting")

    life.run(script)


def test_an_answer_with_a_key_is_of_what_waits(store: Store, clock: VirtualClock) -> None:
    put(store, [make_schedule()], START)
    life = Life(store, clock, taken(), *[Script()] * 2, taken())

    async def script() -> None:
        await asyncio.sleep(32)
        schedule = f"{life.open_api.timers.removesuffix('timers')}schedules/s1"
        path, query = f"{schedule}/firings/{life.sender.webhook_ids[0]}/ack", {"scheduledAt": format_instant(at(10))}
        assert life.open_api.call("POST", path, query=query).status == 200
        await asyncio.sleep(2)
        backfill = {"from": format_instant(at(5)), "to": format_instant(at(20))}
        assert life.open_api.call("POST", f"{schedule}/backfill", backfill).json()["created"] == 1
        await asyncio.sleep(2)
        assert life.open_api.call("POST", path, query=query).status == 200
        await asyncio.sleep(2)

    life.run(script)

    assert stored(store, backfill_timer_id("s1", at(10)), clock).state == "Fired"


def test_an_occurrence_that_waits_counts_as_one_that_goes_on(store: Store, clock: VirtualClock) -> None:
    put(store, [make_schedule(policy=SchedulePolicy(overlap=Overlap.SKIP), end_seconds=45)], START)
    life = Life(store, clock, taken("15s"))

    async def script() -> None:
        await asyncio.sleep(21)
        url = urlsplit(str(life.sender.received[0]["ackUrl"]).removeprefix(PUBLIC_URL))
        assert life.api.call("POST", url.path, query=url.query).status == 200
        await asyncio.sleep(25)

    life.run(script)

    states = [OccurrenceState.FIRED, OccurrenceState.SKIPPED, OccurrenceState.FIRED, OccurrenceState.FIRED]
    assert lines(store, clock) == list(zip((10, 20, 30, 40), states, strict=True))
