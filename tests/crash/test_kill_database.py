"""kill -9 of the database server in the middle of work: what was acknowledged is there afterwards, and happens."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from pathlib import Path

import httpx
import pytest

from tests.support.callbacks import CallbackReceiver
from tests.support.processes import DuetimeServer
from tests.support.servers import own_server

KILLS = 3
BATCH = 10
MAX_IN_FLIGHT = 16
OPTIONS = ("--max-in-flight", str(MAX_IN_FLIGHT))
PATIENCE_SECONDS = 120.0

# MongoDB has what it acknowledges in the journals of a majority; its stand-in has it in its own if it is told to.
SERVERS: dict[str, dict[str, str]] = {
    "mariadb": {},
    "mongodb": {"SECANTUSDB_OPTIONS": "--sync-on-commit"},
    "mysql": {},
    "postgresql": {},
}


class Creator(threading.Thread):
    """Creates timers until it is told to stop, and remembers those whose creation was acknowledged."""

    def __init__(self, server: DuetimeServer, callback_url: str) -> None:
        super().__init__()
        self.accepted: set[str] = set()
        self.stop = threading.Event()
        self._client = httpx.Client(base_url=server.url, timeout=PATIENCE_SECONDS)
        self._url = callback_url

    def run(self) -> None:
        number = 0
        with self._client as client:
            while not self.stop.wait(0.1):
                number += 1
                timers = [{"id": f"{number}-{n}", "delay": "50ms", "callbackUrl": self._url} for n in range(BATCH)]
                answer = client.post("/v1/namespaces/default/timers/batch", json={"timers": timers})
                if answer.is_success:
                    items = zip(timers, answer.json()["items"], strict=True)
                    self.accepted |= {timer["id"] for timer, item in items if item["status"] == 201}

    def wait_for(self, number: int) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(self.accepted) < number:
            assert self.is_alive()
            assert time.monotonic() < deadline, f"{len(self.accepted)} of {number} were accepted"
            time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", SERVERS)
def test_what_was_acknowledged_is_kept_and_fires(name: str, tmp_path: Path) -> None:
    with (
        own_server(name, **SERVERS[name]) as database,
        CallbackReceiver() as receiver,
        DuetimeServer(*OPTIONS, cwd=tmp_path, DUETIME_STORE=database.url) as server,
    ):
        creator = Creator(server, receiver.url)
        creator.start()
        try:
            for _ in range(KILLS):
                creator.wait_for(len(creator.accepted) + 5 * BATCH)
                arrived = len(receiver.counts())
                receiver.wait_for_timers(arrived + BATCH + 1, timeout_seconds=PATIENCE_SECONDS)
                database.restart()
            creator.wait_for(len(creator.accepted) + 5 * BATCH)
        finally:
            creator.stop.set()
            creator.join()
        receiver.wait_for(lambda counts: counts.keys() >= creator.accepted, timeout_seconds=PATIENCE_SECONDS)
        wait_until_none_is_scheduled(server)
        counts = receiver.counts()

        database.restart()  # what was recorded stays recorded: none of them fires again
        wait_until_none_is_scheduled(server)
        assert server.terminate() == 0
        assert receiver.counts() == counts

    firings = defaultdict(set)
    for arrival in receiver.arrivals:
        firings[arrival.timer_id].add(arrival.headers["webhook-id"])
    assert {timer_id: ids for timer_id, ids in firings.items() if len(ids) != 1} == {}, "one firing, perhaps repeated"
    repeated = [timer_id for timer_id, count in counts.items() if count > 1]
    assert len(repeated) <= KILLS * MAX_IN_FLIGHT, "more than was in flight"


def wait_until_none_is_scheduled(server: DuetimeServer) -> None:
    """Until all outcomes are recorded; requests fail while the database comes back."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        answer = server.client.get("/v1/namespaces/default/timers", params={"state": "Scheduled", "limit": 1})
        if answer.is_success and not answer.json()["items"]:
            return
        assert time.monotonic() < deadline, answer.text
        time.sleep(0.1)
