"""The recorder of histories: what it writes down is the same each time, and a difference is seen."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from tests.histories.comparing import differences
from tests.histories.plan import make_plan
from tests.histories.playing import play

WITHOUT_FAULTS, WITH_FAULTS = 0, 3


@pytest.mark.parametrize("seed", [WITHOUT_FAULTS, WITH_FAULTS])
def test_a_plan_has_one_history(seed: int) -> None:
    history = play(make_plan(seed))

    assert history["hasFaults"] == (seed == WITH_FAULTS)
    assert play(make_plan(seed)) == json.loads(json.dumps(history)) == history


def test_what_an_engine_may_not_choose_is_a_difference() -> None:
    history = play(make_plan(WITHOUT_FAULTS))
    receiver = next(iter(history["requests"]))

    def changed(**changes: Any) -> list[str]:
        other = copy.deepcopy(history)
        other["requests"][receiver][0] |= changes
        return differences(history, other)

    at = history["requests"][receiver][0]["at"]
    assert changed(at=at.replace(".", ".0")) == []
    assert len(changed(at=at.replace("T00:00:", "T00:01:"))) == 1
    assert changed(method="DELETE") == [f"requests.{receiver}[0].method: 'POST', now 'DELETE'"]
    assert differences(history, history | {"calls": history["calls"][1:]}) != []


def test_with_faults_only_the_ends_are_compared() -> None:
    history = play(make_plan(WITH_FAULTS))
    other = copy.deepcopy(history)
    other["requests"] = {}
    assert differences(history, other) == []

    namespace, timers = next((name, timers) for name, timers in other["timers"].items() if timers)
    timers[0]["state"] = "lost"
    assert len(differences(history, other)) == 1
    assert namespace in differences(history, other)[0]
