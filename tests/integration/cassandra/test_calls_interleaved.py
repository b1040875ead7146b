"""Several processes at one service call on Cassandra, their requests in every order that chance finds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from duetime.domain.errors import StoreUnavailable
from duetime.domain.service_calls import ServiceCall
from duetime.stores.port.calls import ApplyStatus, CallFilter, DeleteStatus
from duetime.testing.contract import call_builders as make
from tests.integration.cassandra.test_calls_crashes import (
    Prepare,
    amend,
    begin,
    check,
    conclude,
    delete,
    finished,
    publish,
    running,
    scheduled,
    star,
    submit,
)
from tests.integration.cassandra.test_calls_crashes import due as poll
from tests.support.cassandra_calls import OpenedCalls, World, nobody_waits, world
from tests.support.clock import NOW
from tests.support.interleaving import Interleaving

pytestmark = [pytest.mark.repeated, pytest.mark.timeout(600)]

SEEDS = range(4)
Act = Callable[[OpenedCalls, ServiceCall | None], object]
WON = (ApplyStatus.APPLIED, DeleteStatus.DELETED)
LOST = (ApplyStatus.SUPERSEDED, ApplyStatus.EXISTS, DeleteStatus.NOT_FOUND, DeleteStatus.RUNNING)


def tidy(calls: OpenedCalls, _: ServiceCall | None) -> None:
    """Reads all there is with a clock that is an hour ahead: no entry is young to it."""
    poll(calls)
    calls.outbox.unpublished(limit=10)
    for wanted in (CallFilter(), CallFilter(tags=("a",)), CallFilter(tags=("c",)), CallFilter(starred=True)):
        calls.list(make.TENANT, wanted, cursor=None, limit=10, now=NOW)


@dataclass(frozen=True)
class Race:
    """``most_winners``: how many of the changes may be made; at least one is."""

    name: str
    prepare: Prepare
    acts: Sequence[Act]
    most_winners: int = 1


def nothing(_: OpenedCalls) -> None:
    return None


RACES = [
    Race("submissions with one key", nothing, (submit, submit, submit)),
    Race("a submission that is tidied away", nothing, (submit, tidy, publish)),
    Race("two submissions that are tidied away", nothing, (submit, submit, tidy)),
    Race("begin and delete", scheduled, (begin, begin, delete)),
    Race("begin and amend", scheduled, (begin, amend, tidy)),
    Race("amend twice", scheduled, (amend, amend, tidy)),
    Race("amend and delete", scheduled, (amend, delete, tidy), most_winners=2),
    Race("conclude and star", running, (conclude, star, tidy)),
    Race("conclude twice and publish", running, (conclude, conclude, publish)),
    Race("delete twice and publish", finished, (delete, delete, publish)),
    Race("publish twice", running, (publish, publish, conclude)),
]


@pytest.mark.parametrize("race", RACES, ids=lambda race: race.name)
def test_whatever_the_order_all_is_whole(race: Race) -> None:
    for seed in SEEDS:
        with world() as cassandra, nobody_waits():
            results = run(cassandra, race, seed)
            made = [result for result in results if result in WON]
            others = [result for result in results if result not in WON and result is not None]
            assert all(result in LOST or isinstance(result, StoreUnavailable) for result in others), (seed, results)
            assert len(made) <= race.most_winners, (seed, results)
            assert made or any(isinstance(result, StoreUnavailable) for result in others), (seed, results)
            cassandra.now_s += 7200
            check(cassandra, marked=6 if publish in race.acts else 0)


def run(cassandra: World, race: Race, seed: int) -> list[object]:
    call = race.prepare(cassandra.open())
    stores = [cassandra.open(ahead_s=3600.0 * (act is tidy)) for act in race.acts]
    interleaving = Interleaving(seed)
    cassandra.network.gate = interleaving.gate
    acts = [lambda act=act, calls=calls: act(calls, call) for act, calls in zip(race.acts, stores, strict=True)]
    results = interleaving.run(acts)
    cassandra.network.gate = None
    return results
