"""Duetime itself: ``duetime serve``, which gets schedules and timers over HTTP, and ``duetime worker`` beside it."""

import json
import math
import os
import sys
import threading
import time
from contextlib import ExitStack
from itertools import groupby
from operator import itemgetter
from typing import Any

from benchmarks.service import ROOT, Client, Service, rfc3339, running

_STORE, _PORT = os.environ["PEER_STORE"], os.environ["PEER_PORT"]
_KEEP_SECONDS = 60
_CONNECTIONS = 8


def _become(*command: str, **settings: object) -> None:
    own = {f"DUETIME_{name.upper()}": str(value) for name, value in settings.items()}
    environment = {**os.environ, **own, "PYTHONPATH": str(ROOT / "shared")}
    arguments = ("-m", "duetime.cli", *command, "--store", _STORE, "--log-level", "warning")
    os.execve(sys.executable, (sys.executable, *arguments), environment)


def _create(service: Service, url: str, number: int) -> None:
    """Store schedules of every minute, from this one on; ``url`` ends in a slash.

    Raises ``RuntimeError`` when one is refused.
    """
    errors: list[Any] = []
    start = rfc3339(time.time() // 60 * 60)

    def put(mine: range) -> None:
        client = Client(service.port)
        for index in mine:
            body = {
                "every": "1m",
                "startAt": start,
                "anchor": start,
                "callbackUrl": f"{url}s{index}",
                "payload": {"n": index},
            }
            status, answer = client.request("PUT", f"/v1/namespaces/default/schedules/s{index}", body)
            if status != 201:
                errors.append(answer)

    threads = [threading.Thread(target=put, args=(range(n, number, _CONNECTIONS),)) for n in range(_CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise RuntimeError(errors[0])


def _feed(*, is_live: bool) -> None:
    """Store the timers of each line of the standard input."""
    with ExitStack() as stack:
        client = _client_of_workers() if is_live else stack.enter_context(running(_STORE)).client()
        for queue in ("slow", "quick"):
            client.request("PUT", f"/v1/namespaces/{queue}")
        for line in sys.stdin:
            for queue, timers in groupby(json.loads(line), itemgetter("queue")):
                found = [
                    {"id": str(each["n"]), "executeAt": rfc3339(each["at"] / 1000), "callbackUrl": each["url"]}
                    for each in timers
                ]
                client.create(found, namespace=queue)


def _client_of_workers() -> Client:
    for _ in range(600):
        client = Client(int(_PORT))
        try:
            client.request("GET", "/health")
            return client
        except OSError:
            time.sleep(0.1)
    raise TimeoutError("the server does not answer")


def _fire(*queues: str) -> None:
    # Half of it is one host's, and three quarters of that one namespace's at one host.
    concurrency = max(int(each.partition("=")[2]) for each in queues)
    settings = {"max_in_flight": math.ceil(concurrency * 8 / 3), "fired_retention_seconds": _KEEP_SECONDS}
    if os.environ["PEER_INDEX"] == "0":
        _become("serve", "--port", _PORT, "--workers", "1", **settings)
    _become("worker", **settings)


def main(command: str, *given: str) -> None:
    if command == "create":
        with running(_STORE) as service:
            _create(service, given[1], int(given[0]))
    elif command == "feed":
        _feed(is_live=bool(given))
    elif command == "fire":
        _fire(*given)
    else:
        _become("serve", "--port", "0")


if __name__ == "__main__":
    main(*sys.argv[1:])
