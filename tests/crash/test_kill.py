"""kill -9 of the server after any number of callbacks, again and again: nothing accepted is lost."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

import httpx
import pytest

from tests.support.callbacks import CallbackReceiver
from tests.support.processes import DuetimeServer
from tests.support.server_stores import server_names

MAX_IN_FLIGHT = 64
OPTIONS = ("--max-in-flight", str(MAX_IN_FLIGHT))
BATCH = 25


# Not on MongoDB's stand-in, which is too slow for so many timers: tests/integration/mongodb/test_processes.py.
@pytest.mark.parametrize("store_variables", ["sqlite", *server_names()], indirect=True)
@pytest.mark.parametrize(
    ("timers", "kills", "seed"),
    [
        pytest.param(600, 3, 1, id="short"),
        pytest.param(3000, 15, 2, id="long", marks=[pytest.mark.slow, pytest.mark.timeout(600)]),
    ],
)
def test_no_timer_is_lost(
    timers: int, kills: int, seed: int, tmp_path: Path, store_variables: dict[str, str]
) -> None:
    chance = random.Random(seed)
    accepted: set[str] = set()
    with CallbackReceiver() as receiver:
        for number in range(kills):
            with DuetimeServer(*OPTIONS, cwd=tmp_path, **store_variables) as server:
                wanted = [f"r{number}-{n}" for n in range(timers // kills)]
                callbacks = chance.randint(1, len(wanted) // 2)
                killer = threading.Thread(target=receiver.kill_after, args=(callbacks, server.process))
                accepted |= create_while_it_lives(server, wanted, receiver.url, chance, killer)
                killer.join()
        with DuetimeServer(*OPTIONS, cwd=tmp_path, **store_variables) as server:
            receiver.wait_for(lambda counts: counts.keys() >= accepted, timeout_seconds=300)
            assert unfinished(server) == []
            assert server.terminate() == 0
            counts = receiver.counts()
    assert len(accepted) > timers // 3, "too little was accepted for the test to mean anything"
    assert counts.keys() >= accepted


def unfinished(server: DuetimeServer) -> list[str]:
    """The ids of timers that have not fired once what has arrived is recorded."""
    deadline = time.monotonic() + 20
    while True:
        items = server.ok("GET", "/timers", params={"state": "Scheduled", "limit": 100})["items"]
        if not items or time.monotonic() > deadline:
            return [item["id"] for item in items]


def create_while_it_lives(
    server: DuetimeServer, wanted: list[str], url: str, chance: random.Random, killer: threading.Thread
) -> set[str]:
    """Those of ``wanted`` whose creation was answered before the server was killed.

    The killer counts callbacks once half of them were answered, so that as many again are still to come.
    """
    accepted: set[str] = set()
    for start in range(0, len(wanted), BATCH):
        if start == len(wanted) // 2:
            killer.start()
        timers = [
            {"id": timer_id, "delay": f"{chance.randrange(3000)}ms", "callbackUrl": url}
            for timer_id in wanted[start : start + BATCH]
        ]
        try:
            server.create_many(timers)
        except httpx.TransportError:
            break
        accepted.update(timer["id"] for timer in timers)
    return accepted
