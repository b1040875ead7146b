"""What is known of other processes of this machine."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from duetime.runtime.ids import new_worker_id
from duetime.runtime.process_life import has_died
from tests.support.processes import command_environment

_LIVE = "from duetime.runtime.ids import new_worker_id; print(new_worker_id(), flush=True); input()"


def start(**variables: str) -> tuple[subprocess.Popen[str], str]:
    """A process that lives until its standard input ends, and the id of a worker of it."""
    process = subprocess.Popen(
        [sys.executable, "-c", _LIVE],
        env=command_environment(**variables),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


@pytest.fixture
def other() -> Iterator[tuple[subprocess.Popen[str], str]]:
    process, worker_id = start()
    with process:
        yield process, worker_id
        process.kill()


def test_a_process_has_died_as_soon_as_it_is_killed_and_not_before(other: tuple[subprocess.Popen[str], str]) -> None:
    process, worker_id = other
    assert not has_died(worker_id)
    process.send_signal(signal.SIGSTOP)
    assert not has_died(worker_id)
    process.kill()
    process.wait()
    assert has_died(worker_id)


def test_this_process_lives_and_all_its_workers_with_it() -> None:
    assert [has_died(worker_id) for worker_id in (new_worker_id(), new_worker_id())] == [False, False]


@pytest.mark.parametrize("worker_id", ["host:7:0123456789ab", "host:7:0123456789ab:" + "0" * 28, ""])
def test_of_a_worker_of_another_machine_nothing_is_known(worker_id: str) -> None:
    assert not has_died(worker_id)


def test_on_lambda_nothing_is_known() -> None:
    process, worker_id = start(AWS_LAMBDA_FUNCTION_NAME="poller")
    with process:
        process.kill()
    assert len(worker_id.split(":")) == 3
    assert not has_died(worker_id)
