"""``/v1/namespaces/{ns}/schedules/{id}/occurrences``: the coming ones in local time, and from a time on."""

from __future__ import annotations

import pytest

from tests.support.api import World
from tests.support.schedule_api import PATH, created


def test_coming_occurrences_are_shown_in_local_time(world: World) -> None:
    created(world, timeZone="Europe/Berlin", maxFirings=2)

    answer = world.api.get(f"{PATH}/s1/occurrences")

    assert answer.status == 200, answer.text
    body = answer.json()
    assert body["past"] == []
    assert [each["localTime"] for each in body["coming"]] == [
        "2026-12-21T09:00:00.000+01:00",
        "2026-12-22T09:00:00.000+01:00",
    ]
    assert len(world.api.get(f"{PATH}/s1/occurrences", query={"count": 1}).json()["coming"]) == 1
    assert world.api.get(f"{PATH}/s1/occurrences", query={"count": 101}).status == 400


@pytest.mark.parametrize("limit", [{}, {"maxFirings": 5}])
def test_occurrences_are_listed_from_a_time_on(world: World, limit: dict[str, int]) -> None:
    created(world, **limit)

    answer = world.api.get(f"{PATH}/s1/occurrences", query={"from": "2026-12-24T10:00:00+01:00", "count": 2}).json()

    assert [each["scheduledAt"][:10] for each in answer["coming"]] == ["2026-12-24", "2026-12-25"]
    assert answer["past"] == []


def test_what_is_too_far_away_to_be_counted_is_refused(world: World) -> None:
    created(world, cron=..., every="1s", maxFirings=10**9)

    answer = world.api.get(f"{PATH}/s1/occurrences", query={"from": "2027-12-24T10:00:00Z"})

    assert (answer.status, answer.json()["errors"][0]["field"]) == (400, "from")
