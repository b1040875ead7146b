from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from duetime.delivery.curl import CurlSender
from duetime.delivery.dns import Resolve, system_resolve
from duetime.delivery.egress import LOOPBACK, EgressPolicy
from duetime.delivery.port import Callback, CallbackResult
from duetime.delivery.sender_thread import SenderThread
from duetime.delivery.settings import SenderSettings
from tests.support.receiver import WAIT_SECONDS, Receiver

LOOPBACK_ALLOWED = SenderSettings(egress=EgressPolicy(allow_cidrs=LOOPBACK))


class Sending:
    """A started sender, which may call this machine, and what it reported so far."""

    def __init__(self, settings: SenderSettings = LOOPBACK_ALLOWED, *, resolve: Resolve = system_resolve) -> None:
        self.sender = SenderThread(CurlSender(settings, resolve=resolve))
        self.batches: list[list[CallbackResult]] = []
        self.threads: set[str] = set()
        self._keys = count(1)
        self._changed = threading.Condition()
        self.sender.start(self.take)

    def take(self, results: list[CallbackResult]) -> None:
        with self._changed:
            self.threads.add(threading.current_thread().name)
            self.batches.append(results)
            self._changed.notify_all()

    @property
    def results(self) -> list[CallbackResult]:
        return [result for batch in self.batches for result in batch]

    def callback(
        self,
        url: str,
        *,
        body: bytes = b"{}",
        headers: tuple[str, ...] = ("Content-Type: application/json",),
        timeout_seconds: float = WAIT_SECONDS,
    ) -> Callback:
        return Callback(next(self._keys), url, headers, body, timeout_seconds)

    def wait_for(self, count: int) -> list[CallbackResult]:
        with self._changed:
            if not self._changed.wait_for(lambda: len(self.results) >= count, WAIT_SECONDS):
                raise AssertionError(f"{len(self.results)} of {count} results came")
            return self.results

    def post(self, url: str, *, timeout_seconds: float = WAIT_SECONDS) -> CallbackResult:
        """The result of one callback, waited for."""
        callback = self.callback(url, timeout_seconds=timeout_seconds)
        known = len(self.results)
        self.sender.submit([callback])
        result = self.wait_for(known + 1)[-1]
        assert result.key == callback.key
        assert (result.status is None) == (result.error is not None)
        return result


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@pytest.fixture
def start() -> Iterator[Callable[..., Sending]]:
    """Makes senders and closes them."""
    made: list[Sending] = []

    def start(*, resolve: Resolve = system_resolve, **settings: Any) -> Sending:
        made.append(Sending(replace(LOOPBACK_ALLOWED, **settings), resolve=resolve))
        return made[-1]

    yield start
    for sending in made:
        sending.sender.close()


@pytest.fixture
def sending(start: Callable[..., Sending]) -> Sending:
    return start()
