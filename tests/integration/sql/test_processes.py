"""Several processes on one database: they start at once, share shards, and lose nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from duetime.domain.shards import MAX_SHARED_SHARDS
from duetime.stores.open import open_store
from duetime.stores.port.timers import TimerFilter
from duetime.testing.contract.builders import seconds
from tests.support.clock import NOW
from tests.support.databases import database_url, drop_tables

PROCESSES = 4
OWN_TIMERS = 100
CONTESTED_TIMERS = 60
SHARDS = 12

# What each process does once all of them are ready: everything that races, on a database without a schema.
WORKER = """
import json, sys
from datetime import datetime
from duetime.stores.open import open_store
from duetime.stores.port.timers import PutMode
from duetime.testing.contract.builders import make_timer

url, name, own, contested, shards = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])
now = datetime.fromisoformat(sys.argv[6])
store = open_store(url)
print("ready", flush=True)
sys.stdin.readline()

store.initialise()
namespace, _ = store.catalogue.create_namespace("shared", num_shards=shards, dedicated=False, now=now)
dedicated, _ = store.catalogue.create_namespace(f"dedicated-{name}", num_shards=3, dedicated=True, now=now)
secret = store.catalogue.secret("cursor", name.encode())
ids = [f"{name}-{index}" for index in range(own)] + [f"contested-{index}" for index in range(contested)]
statuses = []
for start in range(0, len(ids), 20):
    batch = [make_timer(namespace, timer_id, now=now) for timer_id in ids[start : start + 20]]
    statuses += [result.status for result in store.timers.put(batch, mode=PutMode.CREATE, now=now)]
leases = [
    store.leases.claim([shard], name, lease_seconds=60, metadata="{}", now=now)[0] for shard in range(shards)
]
store.close()
print(json.dumps({
    "statuses": statuses,
    "secret": secret.decode(),
    "first_shard": dedicated.first_shard,
    "claimed": [lease.shard_id for lease in leases if lease is not None],
    "versions": [lease.version for lease in leases if lease is not None],
}))
"""


def run_together(url: str) -> list[dict[str, Any]]:
    """What each of the processes reports."""
    arguments = [str(number) for number in (OWN_TIMERS, CONTESTED_TIMERS, SHARDS)]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, url, f"p{index}", *arguments, NOW.isoformat()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={"PYTHONPATH": ":".join(path for path in sys.path if path)},
        )
        for index in range(PROCESSES)
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        outputs = [process.communicate(timeout=60)[0] for process in processes]
        assert [process.returncode for process in processes] == [0] * PROCESSES
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    return [json.loads(output) for output in outputs]


def test_processes_that_start_at_once_share_one_file(tmp_path: Path) -> None:
    check_processes_that_start_at_once(f"sqlite:///{tmp_path}/data/duetime.db")


def test_processes_that_start_at_once_share_one_server(server: str) -> None:
    drop_tables(server)
    check_processes_that_start_at_once(database_url(server))


def check_processes_that_start_at_once(url: str) -> None:
    reports = run_together(url)

    store = open_store(url)
    store.check()
    statuses = Counter(status for report in reports for status in report["statuses"])
    contested_again = (PROCESSES - 1) * CONTESTED_TIMERS
    assert statuses == {"created": PROCESSES * OWN_TIMERS + CONTESTED_TIMERS, "unchanged": contested_again}
    namespace = store.catalogue.get_namespace("shared")
    assert namespace is not None
    listed = store.timers.list(namespace, TimerFilter(), cursor=None, limit=1000, now=NOW)
    assert len(listed.items) == PROCESSES * OWN_TIMERS + CONTESTED_TIMERS

    assert len({report["secret"] for report in reports}) == 1
    assert sorted(report["first_shard"] for report in reports) == [
        MAX_SHARED_SHARDS + 3 * i for i in range(PROCESSES)
    ]
    assert sorted(shard for report in reports for shard in report["claimed"]) == list(range(SHARDS))
    assert {version for report in reports for version in report["versions"]} == {1}
    assert store.timers.due(0, until=NOW - seconds(1), limit=1).timers == []
    store.close()
