"""What a page of large payloads takes of memory, driver and all: on real servers, in a child process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from duetime.domain.namespaces import Namespace
from duetime.stores.port.pages import PAGE_BYTES
from duetime.stores.port.timers import PutMode
from duetime.testing.contract.builders import make_timers
from tests.support.clock import NOW
from tests.support.databases import database_url
from tests.support.sql_store import SqlStore

TIMERS = 500
PAYLOAD = '"' + "x" * (255 * 1024) + '"'
BATCH = 20
MIB = 1024 * 1024

_CHILD = """
import json, sys
from pathlib import Path
from duetime.domain.namespaces import Namespace
from duetime.stores.open import open_store
from duetime.stores.port.timers import TimerFilter
from tests.support.clock import NOW

def most_bytes():
    # Not what getrusage tells, which begins with what the parent had.
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024

store, (read, tag) = open_store(sys.argv[1]), sys.argv[2:]
namespace = store.catalogue.get_namespace("single")
store.timers.due(0, until=NOW, limit=1)  # with a connection, and the modules that it takes
before = most_bytes()
if read == "due":
    timers = store.timers.due(0, until=NOW, limit=500).timers
elif read == "list":
    timers = store.timers.list(namespace, TimerFilter(tag=tag or None), cursor=None, limit=500, now=NOW).items
else:
    timers = store.timers.find_by_correlation(namespace, "c", cursor=None, limit=500, now=NOW).items
payloads = [len(timer.content.payload_json) for timer in timers]
print(json.dumps({"timers": len(payloads), "payloads": sum(payloads), "grown": most_bytes() - before}))
"""


@pytest.fixture
def full(server_store: SqlStore, single: Namespace) -> None:
    timers = make_timers(single, TIMERS, payload_json=PAYLOAD, tags=("t",), correlation_id="c")
    for start in range(0, TIMERS, BATCH):
        server_store.timers.put(timers[start : start + BATCH], mode=PutMode.CREATE, now=NOW)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="tells its memory where Linux does")
@pytest.mark.usefixtures("full")
def test_a_page_of_large_payloads_takes_a_bounded_amount_of_memory(server: str) -> None:
    for read, tag in (("due", ""), ("list", ""), ("list", "t"), ("correlation", "")):
        command = [sys.executable, "-c", _CHILD, database_url(server), read, tag]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        found = json.loads(done.stdout)

        assert found["timers"] == PAGE_BYTES // len(PAYLOAD), (read, found)
        assert found["payloads"] <= PAGE_BYTES
        # What the driver holds of it beside what it makes of it; all 500 would be 125 MiB, twice.
        assert found["grown"] < 48 * MIB, (read, found)
