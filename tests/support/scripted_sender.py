"""Senders in virtual time whose answers a test scripts by what is sent."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from duetime.delivery.port import Callback, CallbackResult, TransportError
from duetime.testing.receiver import VirtualSender


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

    def result_of(self, callback: Callback) -> CallbackResult:
        is_timeout = self.status is None and self.error is TransportError.TIMEOUT
        return CallbackResult(
            key=callback.key,
            status=self.status,
            body=self.body,
            retry_after=self.retry_after,
            error=None if self.status is not None else self.error,
            message="",
            duration_seconds=callback.timeout_seconds if is_timeout else self.delay_seconds,
            head=self.head,
        )


class ScriptedSender(VirtualSender):
    """``script`` decides by the callback's decoded body. ``received`` holds the bodies in order of arrival."""

    def __init__(self, script: Callable[[dict[str, object]], Script] = lambda body: Script()) -> None:
        super().__init__()
        self.script = script
        self.received: list[dict[str, object]] = []
        self.webhook_ids: list[str] = []

    def for_another_poller(self) -> ScriptedSender:
        """A sender to the same receiver: each poller needs its own."""
        other = ScriptedSender(self.script)
        other.received, other.webhook_ids = self.received, self.webhook_ids
        return other

    def of(self, namespace: str) -> list[dict[str, object]]:
        return [body for body in self.received if body["namespace"] == namespace]

    def counts(self) -> Counter[str]:
        """How often the callback of each timer arrived."""
        return Counter(str(body["timerId"]) for body in self.received)

    def result_of(self, callback: Callback) -> CallbackResult:
        assert callback.body is not None
        body = json.loads(callback.body)
        self.received.append(body)
        webhook_id = header(callback, "webhook-id")
        if webhook_id is not None:
            self.webhook_ids.append(webhook_id)
        return self.script(body).result_of(callback)


class RequestSender(VirtualSender):
    """For requests of service calls. ``answer`` decides by the whole callback; ``requests`` holds them in order."""

    def __init__(
        self, answer: Callable[[Callback], Script] = lambda request: Script(), requests: list[Callback] | None = None
    ) -> None:
        super().__init__()
        self.answer = answer
        self.requests = [] if requests is None else requests

    def for_another_poller(self) -> RequestSender:
        return RequestSender(self.answer, self.requests)

    def result_of(self, callback: Callback) -> CallbackResult:
        self.requests.append(callback)
        return self.answer(callback).result_of(callback)


def header(request: Callback, name: str) -> str | None:
    """The value of a header line of ``request``."""
    values = [line.partition(": ")[2] for line in request.headers if line.lower().startswith(f"{name.lower()}:")]
    return values[0] if values else None
