"""Several processes on one store: each timer once, and take-over when one dies."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.support.callbacks import CallbackReceiver
from tests.support.processes import DuetimeProcess, DuetimeServer, in_seconds, wait_for_exit

LEASE_SECONDS = 4
TIMERS = 200
"""Some for each shard of the default namespace."""


def test_workers_share_the_shards_and_fire_each_timer_once(
    tmp_path: Path, receiver: CallbackReceiver, store_variables: dict[str, str]
) -> None:
    lease = ("--lease-seconds", str(LEASE_SECONDS))
    with (
        DuetimeServer(*lease, cwd=tmp_path, **store_variables) as server,
        DuetimeProcess("worker", *lease, cwd=tmp_path, **store_variables) as worker,
    ):
        worker.wait_for_shards(8)
        execute_at = in_seconds(1.0)
        server.create_many(
            [{"id": f"t{n}", "executeAt": execute_at, "callbackUrl": receiver.url} for n in range(TIMERS)]
        )
        receiver.wait_for_timers(TIMERS)
        codes = [process.terminate() for process in (worker, server)]
        fired = [worker.of("worker.stopped")[0]["fired"], server.of("server.stopped")[0]["fired"]]
    assert codes == [0, 0]
    assert receiver.counts() == {f"t{n}": 1 for n in range(TIMERS)}
    assert sum(fired) == TIMERS
    assert min(fired) > 0


def test_the_shards_of_a_killed_worker_do_not_wait_for_the_end_of_its_lease(
    tmp_path: Path, receiver: CallbackReceiver, store_variables: dict[str, str]
) -> None:
    lease = ("--lease-seconds", "600")
    with (
        DuetimeServer(*lease, cwd=tmp_path, **store_variables) as server,
        DuetimeProcess("worker", *lease, cwd=tmp_path, **store_variables) as worker,
    ):
        worker.wait_for_shards(8)
        server.create_many([{"id": f"t{n}", "delay": "1s", "callbackUrl": receiver.url} for n in range(100)])
        worker.kill()
        receiver.wait_for_timers(100)
        server.wait_for_shards(24)  # the first 16, and the 8 that were the worker's
        assert server.of("worker.died")


def test_the_shards_of_a_frozen_worker_are_its_own_until_its_lease_ends(tmp_path: Path) -> None:
    lease = ("--lease-seconds", str(LEASE_SECONDS))
    with DuetimeServer(*lease, cwd=tmp_path) as server, DuetimeProcess("worker", *lease, cwd=tmp_path) as worker:
        worker.wait_for_shards(8)
        worker.process.send_signal(signal.SIGSTOP)
        frozen_at = time.monotonic()
        server.wait_for_shards(24)
        assert time.monotonic() - frozen_at > LEASE_SECONDS / 2  # the last renewal was at most a third ago
        assert server.of("worker.died") == []


def test_what_is_due_at_once_waits_for_no_look_of_the_process_that_owns_its_shard(
    tmp_path: Path, receiver: CallbackReceiver
) -> None:
    with DuetimeServer("--workers", "2", "--poll-interval-seconds", "600", cwd=tmp_path) as server:
        server.wait_for_shards(24)  # the first 16, and the 8 that the worker took over
        time.sleep(7)  # looks become rare: the worker's next one is after 12 s
        started_at = time.monotonic()
        server.create_many([{"id": f"t{n}", "delay": "0s", "callbackUrl": receiver.url} for n in range(TIMERS)])
        receiver.wait_for_timers(TIMERS)
        took_seconds = time.monotonic() - started_at
        assert server.terminate() == 0
        fired = [server.of(action)[0]["fired"] for action in ("server.stopped", "worker.stopped")]
    assert sum(fired) == TIMERS
    assert min(fired) > 0
    assert took_seconds < 4


@pytest.mark.parametrize(("store", "process_count"), [("sqlite:///duetime.db", 2), ("sqlite://", 1)])
def test_two_cores_have_two_processes_unless_the_store_is_in_memory(
    tmp_path: Path, receiver: CallbackReceiver, store: str, process_count: int
) -> None:
    with DuetimeServer("--store", store, cwd=tmp_path, DUETIME_WORKERS="0") as server:
        server.create_many([{"id": f"t{n}", "delay": "0s", "callbackUrl": receiver.url} for n in range(TIMERS)])
        receiver.wait_for_timers(TIMERS)
        assert server.terminate() == 0
        assert len(server.of("worker.stopped")) == min(process_count, os.cpu_count() or 1) - 1


def test_a_worker_imports_no_file_of_the_working_directory(tmp_path: Path) -> None:
    (tmp_path / "uvloop.py").write_text("raise SystemExit('not the library')\n")
    with DuetimeServer("--workers", "2", cwd=tmp_path) as server:
        server.wait_for("worker.polling")
        assert server.of("worker.ended") == []


def test_workers_do_not_outlive_a_server_that_is_killed(tmp_path: Path) -> None:
    with DuetimeServer("--workers", "2", cwd=tmp_path) as server:
        server.wait_for("worker.polling")
        (started,) = server.of("worker.started")
        server.process.kill()
        server.wait()  # to the end of the log, which the worker writes to as well
        assert server.of("worker.stopped")
    assert wait_for_exit(started["pid"])


def test_ctrl_c_in_a_terminal_reaches_the_workers_once_and_in_good_order(tmp_path: Path) -> None:
    with DuetimeServer("--workers", "2", cwd=tmp_path) as server:
        server.wait_for("worker.polling")
        (started,) = server.of("worker.started")
        assert os.getpgid(started["pid"]) == started["pid"]  # not in the terminal's foreground group
        server.process.send_signal(signal.SIGINT)
        assert server.wait() == 0
        assert server.of("worker.stopped")
        assert server.of("service.killed") == []
