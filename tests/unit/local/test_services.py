from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from duetime.local.services import ThreadService, in_thread, run_services


@dataclass
class Looping:
    """Works until it is stopped; ``on_start`` is called once it runs."""

    name: str = "looping"
    on_start: Callable[[], None] = lambda: None
    events: list[str] = field(default_factory=list)

    async def run(self, stop: asyncio.Event) -> None:
        self.events.append("started")
        self.on_start()
        await stop.wait()
        self.events.append("stopped")


@dataclass
class Failing:
    name: str = "failing"

    async def run(self, stop: asyncio.Event) -> None:
        raise RuntimeError("broken")


def actions(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.action for record in caplog.records if hasattr(record, "action")]


def send_to_self(number: signal.Signals) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


@contextmanager
def handled(number: signal.Signals, handler: signal.Handlers) -> Iterator[None]:
    """Whatever the tests were started with: under nohup they ignore SIGHUP."""
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_stops_every_service_in_good_order(number: signal.Signals) -> None:
    first, second = Looping("first"), Looping("second", on_start=send_to_self(number))
    with handled(number, signal.SIG_DFL):
        assert run_services([first, second], stop_seconds=30) == 0
    assert first.events == second.events == ["started", "stopped"]


def test_a_process_that_outlives_its_terminal_goes_on() -> None:
    first = Looping("first", on_start=send_to_self(signal.SIGHUP))
    second = Looping("second", on_start=send_to_self(signal.SIGTERM))
    with handled(signal.SIGHUP, signal.SIG_IGN):  # as nohup does
        assert run_services([first, second], stop_seconds=30) == 0
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_a_service_that_fails_stops_the_others(caplog: pytest.LogCaptureFixture) -> None:
    other = Looping()
    assert run_services([other, Failing()], stop_seconds=30) == 1
    assert other.events == ["started", "stopped"]
    assert "service.failed" in actions(caplog)


def test_a_service_that_ends_by_itself_is_a_failure() -> None:
    ended = ThreadService("ended", lambda: None, lambda: None)
    assert run_services([Looping(), ended], stop_seconds=30) == 1


def test_a_service_that_fails_while_stopping_is_a_failure() -> None:
    release = threading.Event()

    def work() -> None:
        release.wait(30)
        raise RuntimeError("broken")

    service = ThreadService("late", work, release.set)
    assert run_services([service, Looping(on_start=send_to_self(signal.SIGTERM))], stop_seconds=30) == 1


def test_a_thread_is_asked_to_stop_and_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    release, names = threading.Event(), []

    def work() -> None:
        names.append(threading.current_thread().name)
        assert release.wait(30)

    service = ThreadService("worker-thread", work, release.set)
    assert run_services([service, Looping(on_start=send_to_self(signal.SIGTERM))], stop_seconds=30) == 0
    assert names == ["worker-thread"]
    assert actions(caplog) == ["service.stopping"]


def test_the_exit_of_a_thread_is_its_failure_and_not_the_loops() -> None:
    with pytest.raises(RuntimeError, match="http exited with 3"):
        asyncio.run(in_thread("http", lambda: sys.exit(3)))


def test_a_thread_gives_its_result() -> None:
    assert asyncio.run(in_thread("sum", lambda: 1 + 1)) == 2


SCRIPT = """
import asyncio, os, sys
from duetime.local.services import run_services

class Stubborn:
    name = "stubborn"
    async def run(self, stop):
        print("started", flush=True)
        await stop.wait()
        print("stopping", flush=True)
        if sys.argv[1] == "stuck":
            await asyncio.Event().wait()

sys.exit(run_services([Stubborn()], stop_seconds=float(sys.argv[2]), on_line=print))
"""


def start(mode: str, stop_seconds: float) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, mode, str(stop_seconds)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": "shared"},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    return process


def test_a_second_signal_ends_the_process_where_it_stands() -> None:
    with start("stuck", 60) as process:
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        assert process.stdout.readline() == "stopping\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 128 + signal.SIGINT


def test_a_service_that_does_not_stop_in_time_is_left_behind() -> None:
    with start("stuck", 0.05) as process:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 1


def test_the_end_of_standard_input_stops_like_a_signal() -> None:
    with start("orderly", 60) as process:
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(30) == 0
