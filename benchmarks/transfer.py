"""``duetime export`` and ``duetime import`` as processes: time, CPU and memory.

    python -m benchmarks.transfer [--timers 100000] [--calls 2000] [--directory DIR]

From SQLite to a file, from there into each target, and back into a file. Targets are SQLite and the servers that
``DUETIME_TEST_<STORE>_URL`` name: their database for tests is emptied. An import compares the store with the file.
``memory`` is the most that the process had; the first line is that of an empty store.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks.figures import parser, show
from duetime.domain.call_steps import CallRules, ExecutionResult, Transition, begun, concluded, submitted
from duetime.domain.executions import LoggedMessage
from duetime.domain.namespaces import Namespace
from duetime.domain.service_calls import Method, Submission, request_spec
from duetime.domain.timers import TimerContent, content_digest, new_timer
from duetime.runtime.ids import new_id
from duetime.stores.core.store import Store
from duetime.stores.open import open_store
from duetime.stores.port.timers import PutMode
from tests.support.server_stores import empty_store, server_names

NOW = datetime.now(UTC).replace(microsecond=0)
BATCH = 500
NUM_SHARDS = 16
PAYLOAD = '{"order": 4711, "text": "' + "x" * 100 + '"}'


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--timers", type=int, default=100_000)
    options.add_argument("--calls", type=int, default=2_000)
    options.add_argument("--directory", type=Path, help="where files are made; default: a temporary one")
    arguments = options.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as name:
        directory = Path(name)
        source = initialised(f"sqlite:///{directory}/source.db")
        measure("export of an empty store", 0, "export", "--store", source, "--output", f"{directory}/empty.jsonl")
        fill(source, arguments.timers, arguments.calls)
        file = directory / "source.jsonl"
        measure("export from sqlite", None, "export", "--store", source, "--output", str(file))
        targets = {"sqlite": initialised(f"sqlite:///{directory}/target.db")}
        targets |= {server: empty_store(server) for server in server_names()}
        for target, url in targets.items():
            move(target, url, file, directory)
        show("file", timers=arguments.timers, calls=arguments.calls, megabytes=file.stat().st_size / 1e6)


def move(target: str, url: str, file: Path, directory: Path) -> None:
    """Into the target, once more, and from there into another file, whose records must be the same."""
    words = ("import", "--store", url, "--input", str(file))
    measure(f"import into {target}", file, *words)
    measure(f"import into {target} once more", file, *words)
    back = directory / f"{target}.jsonl"
    measure(f"export from {target}", file, "export", "--store", url, "--output", str(back))
    if trailer(back) != trailer(file):
        raise SystemExit(f"what came back from {target} is not what went there")


def initialised(url: str) -> str:
    store = open_store(url)
    store.initialise()
    store.close()
    return url


def trailer(file: Path) -> str:
    """Return the counts and digests of a file."""
    with file.open("rb") as opened:
        opened.seek(-4096, os.SEEK_END)
        return opened.read().splitlines()[-1].decode().partition('"checksum"')[0]


def measure(what: str, file: Path | int | None, *command: str) -> None:
    """``file``: whose lines are what was moved; None: those of the command's own ``--output``."""
    started = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "duetime.cli", *command, "--quiet"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    assert process.stderr is not None
    said = process.stderr.read().decode()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    process.stderr.close()
    if process.returncode:
        raise SystemExit(said)
    seconds = time.monotonic() - started
    path = Path(command[-1]) if file is None else file
    lines = path if isinstance(path, int) else sum(1 for _ in path.open("rb"))
    cpu = usage.ru_utime + usage.ru_stime
    rate = lines / seconds if lines else None
    show(what, seconds=seconds, cpu_s=cpu, records_per_s=rate, memory_mib=usage.ru_maxrss / 1024)


def fill(url: str, num_timers: int, num_calls: int) -> None:
    store = open_store(url)
    orders, _ = store.catalogue.create_namespace("orders", num_shards=NUM_SHARDS, dedicated=False, now=NOW)
    calls, _ = store.catalogue.create_namespace(
        "calls@acme", num_shards=NUM_SHARDS, dedicated=False, now=NOW, tenant_id="acme"
    )
    for start in range(0, num_timers, BATCH):
        content = TimerContent(
            execute_at=NOW + timedelta(seconds=86_400 + start),
            callback_url="https://receiver.example/callbacks",
            payload_json=PAYLOAD,
            tags=("a",),
        )
        digest = content_digest(content)
        timers = [
            new_timer(orders, f"order-{number}", content, digest=digest, firing_id=new_id(), now=NOW)
            for number in range(start, min(start + BATCH, num_timers))
        ]
        store.timers.put(timers, mode=PutMode.CREATE, now=NOW)
    for start in range(0, num_calls, BATCH):
        run_calls(store, calls, min(BATCH, num_calls - start))
    store.close()


def run_calls(store: Store, namespace: Namespace, number: int) -> None:
    """Store calls that have been carried out once each: seven events, an execution."""
    request = request_spec(
        method=Method.POST, url="https://receiver.example/run", headers_json=None, body_json=PAYLOAD
    )
    submission = Submission(
        name="report",
        request=request,
        digest="0" * 32,
        due_at=None,
        timeout_seconds=30,
        retry_policy_json=None,
        correlation_id="c",
        tags=("a",),
    )
    first = [
        submitted("acme", new_id(), submission, namespace=namespace, new_id=new_id, now=NOW) for _ in range(number)
    ]
    store.calls.apply(first, now=NOW)
    rules = CallRules()
    second = [
        begun(
            each.after,
            url=request.url,
            sent=LoggedMessage(body=PAYLOAD, body_bytes=len(PAYLOAD)),
            execution_id=new_id(),
            new_id=new_id,
            now=NOW,
            rules=rules,
        )
        for each in first
    ]
    store.calls.apply(second, now=NOW)
    result = ExecutionResult(response_status=200, response=LoggedMessage(), duration_ms=5)
    third: list[Transition] = [
        concluded(each.after, each.executions[0], result, new_id=new_id, now=NOW, rules=rules, random=0.5)
        for each in second
    ]
    store.calls.apply(third, now=NOW)


if __name__ == "__main__":
    main()
