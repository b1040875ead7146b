"""A ``Sender`` for virtual time: answers come from a script, after a virtual delay, in the event loop."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from duetime.delivery.port import Callback, CallbackResult, TransportError


@dataclass(frozen=True)
class Script:
    """What a receiver does with one callback. ``status`` None means that the callback times out."""

    status: int | None = 200
    body: bytes = b""
    delay_seconds: float = 0.001
    retry_after: str | None = None
    head: tuple[bytes, ...] = ()
    error: TransportError = TransportError.TIMEOUT
    """With ``status`` None; only TIMEOUT takes as long as the callback may."""


@dataclass
class ScriptedSender:
    """``script`` decides by the callback's decoded body. ``received`` holds the bodies in order of arrival."""

    script: Callable[[dict[str, object]], Script] = lambda body: Script()
    received: list[dict[str, object]] = field(default_factory=list)
    webhook_ids: list[str] = field(default_factory=list)
    on_results: Callable[[list[CallbackResult]], None] | None = None
    under_way: int = 0
    most_under_way: int = 0

    def start(self, on_results: Callable[[list[CallbackResult]], None]) -> None:
        self.on_results = on_results

    def for_another_poller(self) -> ScriptedSender:
        """A sender to the same receiver: each poller needs its own."""
        return ScriptedSender(self.script, self.received, self.webhook_ids)

    def submit(self, callbacks: Sequence[Callback]) -> None:
        loop = asyncio.get_running_loop()
        for callback in callbacks:
            script = self._receive(callback)
            is_timeout = script.status is None and script.error is TransportError.TIMEOUT
            delay = callback.timeout_seconds if is_timeout else script.delay_seconds
            self.under_way += 1
            self.most_under_way = max(self.most_under_way, self.under_way)
            loop.call_later(delay, self._answer, callback, script, delay)

    def _receive(self, callback: Callback) -> Script:
        assert callback.body is not None
        body = json.loads(callback.body)
        self.received.append(body)
        ids = [line.split(": ", 1)[1] for line in callback.headers if line.lower().startswith("webhook-id:")]
        self.webhook_ids.extend(ids)
        return self.script(body)

    def _answer(self, callback: Callback, script: Script, delay: float) -> None:
        self.under_way -= 1
        assert self.on_results is not None
        self.on_results(
            [
                CallbackResult(
                    key=callback.key,
                    status=script.status,
                    body=script.body,
                    retry_after=script.retry_after,
                    error=None if script.status is not None else script.error,
                    message="",
                    duration_seconds=delay,
                    head=script.head,
                )
            ]
        )

    def close(self, *, grace_seconds: float) -> None:
        pass


@dataclass
class RequestSender(ScriptedSender):
    """For requests of service calls. ``answer`` decides by the whole callback; ``requests`` holds them in order."""

    answer: Callable[[Callback], Script] = lambda request: Script()
    requests: list[Callback] = field(default_factory=list)

    def _receive(self, callback: Callback) -> Script:
        self.requests.append(callback)
        return self.answer(callback)

    def for_another_poller(self) -> RequestSender:
        return RequestSender(answer=self.answer, requests=self.requests)


def header(request: Callback, name: str) -> str | None:
    """The value of a header line of ``request``."""
    values = [line.partition(": ")[2] for line in request.headers if line.lower().startswith(f"{name.lower()}:")]
    return values[0] if values else None
