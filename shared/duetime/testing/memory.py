"""Duetime in the test process: no sockets, no files, no waiting."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from duetime.runtime.settings import LocalSettings, load_settings
from duetime.testing.receiver import Receiver
from duetime.testing.service import VirtualService, virtual_service
from duetime.testing.transport import HandlerTransport
from duetime.testing.virtual_time import VirtualClock
from duetime_client import AsyncDuetime, Duetime

START = datetime(2026, 1, 1, tzinfo=UTC)
URL = "http://duetime.test"


class Clock:
    """The time of an ``InMemoryDuetime``: it stands still until it is advanced."""

    def __init__(self, service: VirtualService, receiver: Receiver) -> None:
        self._service = service
        self._receiver = receiver

    def now(self) -> datetime:
        """UTC, in whole milliseconds."""
        return self._service.now()

    def advance(self, by: timedelta = timedelta(), **units: float) -> datetime:
        """Move time by ``by`` and by ``units`` as of ``timedelta`` (``days=7``); the new ``now()``.

        All that becomes due on the way fires in order, each at its own time, retries among it. What is due at the new
        now has fired, too, and everything is recorded when this returns. Raises ``ValueError`` for a negative span,
        and what a function that answers for the receiver has raised.
        """
        return self.advance_to(self.now() + by + timedelta(**units))

    def advance_to(self, instant: datetime) -> datetime:
        """Advance up to ``instant``, which has a time zone."""
        if instant.tzinfo is None:
            raise ValueError("instant: must have a time zone")
        self._service.advance(instant.astimezone(UTC))
        self._receiver.raise_failure()
        return self.now()


class InMemoryDuetime:
    """``client`` makes requests to the service; ``clock`` moves its time; ``receiver`` gets all that it sends.

    Each request of a client returns when all that is due by then has fired, so what is due at once has.
    """

    def __init__(self, service: VirtualService, receiver: Receiver) -> None:
        self.clock = Clock(service, receiver)
        self.receiver = receiver
        self._service = service
        self._transport = HandlerTransport(service.handler, service.now, on_served=self._settle)
        self.client = self.client_for("default")

    def client_for(self, tenant: str) -> Duetime:
        """Make a client that acts for ``tenant``."""
        return Duetime(URL, tenant=tenant, http_client=httpx.Client(transport=self._transport))

    def async_client(self, tenant: str = "default") -> AsyncDuetime:
        """Make a client for asynchronous code. Its requests block the event loop for the moment that they take."""
        return AsyncDuetime(URL, tenant=tenant, http_client=httpx.AsyncClient(transport=self._transport))

    def _settle(self) -> None:
        if not self._service.is_own_thread:
            self._service.settle()
            self.receiver.raise_failure()


@contextmanager
def in_memory(start: datetime = START, **settings: Any) -> Iterator[InMemoryDuetime]:
    """Run a service of its own whose time begins at ``start``.

    ``settings`` as of ``duetime serve`` (``call_retention_seconds=3600``); the environment has no say.
    """
    fixed = {"store": "sqlite://", "event_publishers": "webhook", "default_num_shards": 1}
    clock = VirtualClock(start.astimezone(UTC))
    receiver = Receiver(clock)
    local = load_settings(LocalSettings, fixed | settings, environ={})
    with virtual_service(local, clock, receiver, is_sending=False) as service:
        thread = threading.Thread(target=service.run, name="duetime-virtual", daemon=True)
        thread.start()
        service.wait_until_started()
        try:
            yield InMemoryDuetime(service, receiver)
        finally:
            service.stop()
            thread.join()
