"""kill -9 of the server after any number of events: no accepted service call loses one, and order per call holds."""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from pathlib import Path

import httpx
import pytest

from tests.support.callbacks import CallbackReceiver
from tests.support.outbox import first_occurrences
from tests.support.processes import DuetimeServer

OPTIONS = ("--lease-seconds", "600")
"""Nobody waits for the leases of the killed: they are longer than the test."""
TENANT = "/v1/tenants/acme"
ENDS = {"ServiceCallSucceeded", "ServiceCallFailed"}
PATIENCE_SECONDS = 60.0


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_no_event_is_lost_and_order_holds(tmp_path: Path) -> None:
    calls, kills = 300, 12
    chance = random.Random(2)
    accepted: list[str] = []
    with CallbackReceiver() as target, CallbackReceiver() as hooks:
        for number in range(kills):
            with DuetimeServer(*OPTIONS, cwd=tmp_path) as server:
                if number == 0:
                    webhook = {"url": hooks.url}
                    assert server.client.put(f"{TENANT}/event-webhook", json=webhook).status_code == 201
                events = chance.randint(1, 2 * calls // kills)
                killer = threading.Thread(target=hooks.kill_after, args=(events, server.process))
                accepted += submit_while_it_lives(server, calls // kills, target.url, killer)
                killer.join()
        with DuetimeServer(*OPTIONS, cwd=tmp_path) as server:
            hooks.wait_until(lambda: not missing(hooks, accepted), timeout_seconds=PATIENCE_SECONDS)
            assert server.terminate() == 0
        arrived = by_call(hooks)
    assert len(accepted) > calls // 3, "too little was accepted for the test to mean anything"
    for call_id in accepted:
        sequence = first_occurrences([at for at, _ in arrived[call_id]])
        assert sequence == list(range(1, len(sequence) + 1))


def submit_while_it_lives(server: DuetimeServer, wanted: int, url: str, killer: threading.Thread) -> list[str]:
    """The ids of the calls whose submission was answered before the server was killed.

    The killer counts events once half of them were answered, so that as many again are still to come.
    """
    accepted: list[str] = []
    for number in range(wanted):
        if number == wanted // 2:
            killer.start()
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


def missing(hooks: CallbackReceiver, accepted: list[str]) -> list[str]:
    """Calls whose last event has not arrived."""
    arrived = by_call(hooks)
    return [call_id for call_id in accepted if not ENDS & {kind for _, kind in arrived[call_id]}]
