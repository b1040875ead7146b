"""Values of the domain as stored text: they come back the same, and damage is an error that quotes nothing."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from duetime.domain.executions import Execution
from duetime.domain.service_calls import ServiceCall, timer_of
from duetime.domain.timers import Timer
from duetime.stores.cassandra.calls import codec
from tests.support import calls as make
from tests.support.clock import NOW

CALL = make.submitted(tags=("b", "ü"), idempotency_key="k", due_at=NOW, retry_policy_json=make.RETRIED).after
STEP = make.begun(CALL)
ENDED = make.concluded(STEP.after, STEP.executions[0], is_ok=False)


@pytest.mark.parametrize("call", [CALL, STEP.after, ENDED.after, replace(CALL, starred=True)])
def test_a_call_and_its_timer_come_back_the_same(call: ServiceCall) -> None:
    assert codec.decode(ServiceCall, codec.encode(call)) == call
    assert codec.decode(Timer, codec.encode(timer_of(call))) == timer_of(call)


@pytest.mark.parametrize("execution", [STEP.executions[0], ENDED.executions[0]])
def test_an_execution_comes_back_the_same(execution: Execution) -> None:
    assert codec.decode(Execution, codec.encode(execution)) == execution


@pytest.mark.parametrize(
    "damage",
    [
        {"status": "Nonsense"},
        {"tags": ["a", 1]},
        {"starred": 1},
        {"revision": True},
        {"due_at": "soon"},
        {"due_at": 10**30},
        {"request": []},
        {"request": {"method": "GET"}},
        {"outcome": {"execution_id": None}},
    ],
)
def test_what_is_damaged_is_an_error_that_quotes_no_value(damage: dict[str, object]) -> None:
    text = json.dumps({**json.loads(codec.encode(CALL)), **damage})

    with pytest.raises(codec.DECODING_ERRORS) as caught:
        codec.decode(ServiceCall, text)
    assert "Nonsense" not in codec.what_is_wrong(caught.value)
    left = codec.lenient(ServiceCall, text)
    assert left["call_id"] == CALL.call_id
    assert left.keys().isdisjoint(damage)


@pytest.mark.parametrize("text", ["", "{broken", "[]", "null", "7", "[" * 100_000])
def test_what_is_no_object_is_an_error(text: str) -> None:
    with pytest.raises(codec.DECODING_ERRORS):
        codec.decode(ServiceCall, text)
    assert codec.lenient(ServiceCall, text) == {}
