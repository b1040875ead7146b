"""How fast timers are accepted over HTTP: batches of 500, or single ones, on kept-alive connections, on SQLite.

    python -m benchmarks.creating [--timers 100000] [--connections 2] [--single] [--other CHECKOUT]

Compared with the store alone taking the same batches in the same run: the ratio is the price of HTTP and validation.
With ``--other`` compared with the server of another checkout instead, in turns: the CPU time of each says what the
rate cannot on a machine that does other work, too.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import threading
import time
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

from benchmarks.figures import parser, show
from benchmarks.firing import store_pending
from benchmarks.service import ROOT, Client, Service, running

_BATCH = 500
_ROUNDS = 5


def bodies(number: int, *, is_single: bool) -> list[bytes]:
    """Request bodies made beforehand, so that the client's own work is small. No two runs have the same ids."""
    run = uuid4().hex[:8]
    due = (datetime.now(UTC) + timedelta(days=1)).isoformat(timespec="milliseconds")
    template = {"callbackUrl": "http://127.0.0.1:9/none", "executeAt": due, "payload": {"order": 1, "note": "hello"}}
    if is_single:
        return [json.dumps(template | {"id": f"{run}-{n}"}).encode() for n in range(number)]
    return [
        json.dumps({"timers": [template | {"id": f"{run}-{start + n}"} for n in range(_BATCH)]}).encode()
        for start in range(0, number, _BATCH)
    ]


def over_http(service: Service, number: int, connections: int, *, is_single: bool) -> float:
    """Timers a second. Raises when a request is not answered with success."""
    prepared = bodies(number, is_single=is_single)
    path = "/v1/namespaces/default/timers" + ("" if is_single else "/batch")
    errors: list[str] = []

    def post(mine: list[bytes]) -> None:
        client = Client(service.port)
        for body in mine:
            status, answer = client.request("POST", path, body)
            if any(each != 201 for each in ([status] if is_single else [item["status"] for item in answer["items"]])):
                errors.append(str(answer)[:300])

    threads = [threading.Thread(target=post, args=(prepared[n::connections],)) for n in range(connections)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise RuntimeError(errors[0])
    return number / (time.perf_counter() - began)


def cpu_us(service: Service, number: int, connections: int, *, is_single: bool) -> float:
    """CPU time of the server per timer, in microseconds."""
    before = service.cpu_seconds()
    over_http(service, number, connections, is_single=is_single)
    return (service.cpu_seconds() - before) / number * 1e6


def in_turns(other: Path, folder: Path, number: int, connections: int, *, is_single: bool) -> None:
    with ExitStack() as servers:
        services = [
            servers.enter_context(running(f"sqlite:///{folder / str(place)}.db", root=root))
            for place, root in enumerate((ROOT, other.resolve()))
        ]
        rounds = [
            [cpu_us(service, number // _ROUNDS, connections, is_single=is_single) for service in services]
            for _ in range(_ROUNDS)
        ]
    own, others = map(statistics.median, zip(*rounds, strict=True))
    show("create", cpu_us_each=own, other_cpu_us_each=others, ratio=own / others)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--timers", type=int, default=100_000)
    options.add_argument("--connections", type=int, default=2)
    options.add_argument("--single", action="store_true", help="one timer a request; 8 connections are a fair load")
    options.add_argument("--other", type=Path, metavar="CHECKOUT")
    given = options.parse_args()
    if given.other is not None:
        with tempfile.TemporaryDirectory() as folder:
            in_turns(given.other, Path(folder), given.timers, given.connections, is_single=given.single)
        return
    with tempfile.TemporaryDirectory() as folder:
        with running(f"sqlite:///{Path(folder) / 'http.db'}") as service:
            cpu = service.cpu_seconds()
            http = over_http(service, given.timers, given.connections, is_single=given.single)
            cpu = service.cpu_seconds() - cpu
        began = time.perf_counter()
        store_pending(f"sqlite:///{Path(folder) / 'store.db'}", given.timers)
        alone = given.timers / (time.perf_counter() - began)
    show(
        "create one by one" if given.single else f"create in batches of {_BATCH}",
        per_s=http,
        cpu_us_each=cpu / given.timers * 1e6,
        store_alone_per_s=alone,
        ratio=http / alone,
    )


if __name__ == "__main__":
    main()
