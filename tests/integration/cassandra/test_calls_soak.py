"""Service calls from due time to end by pollers over Cassandra that loses requests and answers."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from duetime.testing.virtual_time import VirtualClock
from tests.integration.calls import test_soak
from tests.support.cassandra import new_network, store_over
from tests.support.cassandra_faults import Fault, Network, Request, no_faults
from tests.support.clock import NOW
from tests.support.executing import Executing

pytestmark = [pytest.mark.repeated, pytest.mark.timeout(600)]

FAULTS = (Fault.LOST_BEFORE, Fault.LOST_AFTER, Fault.UNAVAILABLE)


@pytest.fixture
def network() -> Network:
    return new_network()


@pytest.fixture
def executing(network: Network) -> Iterator[Executing]:
    with store_over(network) as store:
        yield Executing(store, VirtualClock(NOW))  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", [1])
def test_every_call_ends_once_although_one_request_in_fifteen_is_lost(
    executing: Executing, network: Network, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance = Random(seed)

    def lose(request: Request) -> Fault | None:
        if request.kind == "prepare" or chance.random() > 1 / 15:
            return None
        if request.is_cas and chance.random() < 0.3:
            return Fault.UNFINISHED
        return chance.choice(FAULTS)

    submit = executing.submit
    all_calls = executing.all

    def submit_first(*args: Any, **fields: Any) -> object:
        """What is submitted is there; then things begin to go wrong."""
        network.faults = no_faults
        try:
            return submit(*args, **fields)
        finally:
            network.faults = lose

    def read_all(*args: Any) -> object:
        network.faults = no_faults
        return all_calls(*args)

    monkeypatch.setattr(executing, "submit", submit_first)
    monkeypatch.setattr(executing, "all", read_all)
    monkeypatch.setattr(test_soak, "CALLS", 60)
    test_soak.test_every_call_ends_once_and_every_execution_is_sent_at_most_once(executing, seed)
