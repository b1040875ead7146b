"""kill -9 of the server at random moments: no event of an accepted service call is lost, and order per call holds."""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from pathlib import Path

import httpx
import pytest

from tests.support.callbacks import CallbackReceiver
from tests.support.outbox import first_occurrences
from tests.support.processes import DuetimeServer

OPTIONS = ("--lease-seconds", "2.1")
TENANT = "/v1/tenants/acme"
ENDS = {"ServiceCallSucceeded", "ServiceCallFailed"}
PATIENCE_SECONDS = 60.0


@pytest.mark.parametrize(
    ("calls", "kills", "seed"),
    [
        pytest.param(30, 3, 1, id="short"),
        pytest.param(300, 12, 2, id="long", marks=[pytest.mark.slow, pytest.mark.timeout(600)]),
    ],
)
def test_no_event_is_lost_and_order_holds(calls: int, kills: int, seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    accepted: list[str] = []
    with CallbackReceiver() as target, CallbackReceiver() as hooks:
        for number in range(kills):
            with DuetimeServer(*OPTIONS, cwd=tmp_path) as server:
                if number == 0:
                    webhook = {"url": hooks.url}
                    assert server.client.put(f"{TENANT}/event-webhook", json=webhook).status_code == 201
                killer = threading.Timer(chance.uniform(0.3, 4.0), server.process.kill)
                killer.start()
                accepted += submit_while_it_lives(server, calls // kills, target.url)
                killer.join()
        with DuetimeServer(*OPTIONS, cwd=tmp_path) as server:
            deadline = time.monotonic() + PATIENCE_SECONDS
            while not is_complete(hooks, accepted):
                assert time.monotonic() < deadline, missing(hooks, accepted)
                time.sleep(0.1)
            assert server.terminate() == 0
        arrived = by_call(hooks)
    assert len(accepted) > calls // 3, "too little was accepted for the test to mean anything"
    for call_id in accepted:
        sequence = first_occurrences([at for at, _ in arrived[call_id]])
        assert sequence == list(range(1, len(sequence) + 1))


def submit_while_it_lives(server: DuetimeServer, wanted: int, url: str) -> list[str]:
    """The ids of the calls whose submission was answered before the server was killed."""
    accepted = []
    for _ in range(wanted):
        request = {"method": "POST", "url": url, "body": {"timerId": "call"}}
        body = {"name": "n", "request": request, "timeoutSeconds": 1}
        try:
            answer = server.client.post(f"{TENANT}/service-calls", json=body)
        except httpx.TransportError:
            break
        accepted.append(answer.json()["id"])
    return accepted


def by_call(hooks: CallbackReceiver) -> dict[str, list[tuple[int, str]]]:
    """Sequence and type of what arrived, in the order of arrival."""
    found: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for arrival in list(hooks.arrivals):
        found[arrival.body["aggregateId"]].append((arrival.body["sequence"], arrival.body["type"]))
    return found


def is_complete(hooks: CallbackReceiver, accepted: list[str]) -> bool:
    return not missing(hooks, accepted)


def missing(hooks: CallbackReceiver, accepted: list[str]) -> list[str]:
    """Calls whose last event has not arrived."""
    arrived = by_call(hooks)
    return [call_id for call_id in accepted if not ENDS & {kind for _, kind in arrived[call_id]}]
