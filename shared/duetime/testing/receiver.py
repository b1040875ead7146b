"""A receiver without a network: it records what Duetime sends, and answers as a test has scripted."""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from http import HTTPStatus
from typing import Any

from duetime.delivery.port import MAX_RESPONSE_BYTES, Callback, CallbackResult, TransportError
from duetime.domain.clock import Clock
from duetime.domain.times import round_down

_NOTHING = object()


@dataclass(frozen=True)
class Response:
    """A response, and its delay in virtual time. Made by ``respond``, ``take``, ``hang`` and ``refuse``.

    ``status`` None: no response arrives, for the reason ``error``. ``delay`` None: as long as the request may take.
    """

    status: int | None
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    delay: timedelta | None = timedelta()
    error: TransportError | None = None


def respond(
    status: int = 200,
    *,
    json: Any = _NOTHING,
    body: bytes = b"",
    headers: Mapping[str, str] | None = None,
    delay: timedelta = timedelta(),
) -> Response:
    """Answer with a response, ``delay`` after the request. At most one of ``json`` and ``body``."""
    given = dict(headers or {})
    if json is not _NOTHING:
        if body:
            raise ValueError("give json or body, not both")
        body = _as_json(json).encode()
        given = {"Content-Type": "application/json"} | given
    return Response(status, body, given, delay)


def take(within: timedelta) -> Response:
    """Take the work with a 202: the firing waits for an answer (``client.timers(...).answer``)."""
    return respond(202, json={"ack": {"within": within.total_seconds()}})


def hang() -> Response:
    """Give no response: the request times out."""
    return Response(None, delay=None, error=TransportError.TIMEOUT)


def refuse() -> Response:
    """Give no connection: nobody listens there."""
    return Response(None, error=TransportError.CONNECT)


_as_json = json.dumps


@dataclass(frozen=True)
class Received:
    """A request that Duetime sent, at ``at`` in virtual time. Names of ``headers`` are in lower case."""

    at: datetime
    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Return the body as JSON: of a callback ``namespace``, ``timerId``, ``executeAt``, ``firedAt``, ``attempt``
        and ``payload``; of an event that is delivered to a webhook, the event."""
        return self._document

    @property
    def payload(self) -> Any:
        """The timer's payload (callbacks only)."""
        return self._document["payload"]

    @property
    def attempt(self) -> int:
        """The number of the attempt, from 1 (callbacks only)."""
        attempt: int = self._document["attempt"]
        return attempt

    @property
    def timer_id(self) -> str:
        """The id of the timer (callbacks only)."""
        timer_id: str = self._document["timerId"]
        return timer_id

    @cached_property
    def _document(self) -> Any:
        return json.loads(self.body)


Scripted = Response | int | Callable[[Received], "Response | int"]
"""An int is a status. A function decides by the request, and may use the client of the service under test."""


class VirtualSender(ABC):
    """A ``delivery.port.Sender`` in virtual time: results come in the poller's event loop, after their duration.

    As from libcurl, those of one moment come together.
    """

    def __init__(self) -> None:
        self.on_results: Callable[[list[CallbackResult]], None] | None = None
        self.in_flight: int = 0
        self.most_in_flight: int = 0
        self._ended: list[CallbackResult] = []

    @abstractmethod
    def result_of(self, callback: Callback) -> CallbackResult:
        """Return the result of ``callback``, which arrives now. It is delivered after its ``duration_seconds``."""

    def start(self, on_results: Callable[[list[CallbackResult]], None]) -> None:
        self.on_results = on_results

    def submit(self, callbacks: Sequence[Callback]) -> None:
        loop = asyncio.get_running_loop()
        for callback in callbacks:
            result = self.result_of(callback)
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
            loop.call_later(result.duration_seconds, self._end, result)

    def _end(self, result: CallbackResult) -> None:
        self.in_flight -= 1
        self._ended.append(result)
        if len(self._ended) == 1:
            asyncio.get_running_loop().call_soon(self._hand_over)

    def _hand_over(self) -> None:
        ended, self._ended = self._ended, []
        if self.on_results is not None:
            self.on_results(ended)

    def close(self) -> None:
        self.on_results = None


class Receiver(VirtualSender):
    """Receives every request that Duetime sends, whatever its URL, and answers an empty 200 until told otherwise.

    ``requests`` holds what arrived, in order.
    """

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.requests: list[Received] = []
        self._clock = clock
        self._default: list[Scripted] = [200]
        self._by_url: dict[str, list[Scripted]] = {}
        self._failure: BaseException | None = None

    def answer(self, *answers: Scripted) -> None:
        """Answer requests to all URLs with these in turn; the last one repeats. ``answer_at`` comes first."""
        self._default = _checked(answers)

    def answer_at(self, url: str, *answers: Scripted) -> None:
        """Answer requests to ``url`` with these in turn; the last one repeats."""
        self._by_url[url] = _checked(answers)

    def at(self, url: str) -> list[Received]:
        """Return the requests that arrived at ``url``, in order."""
        return [request for request in self.requests if request.url == url]

    def of(self, timer_id: str) -> list[Received]:
        """Return the callbacks of a timer, in order."""
        return [request for request in self.requests if _timer_id(request) == timer_id]

    def clear(self) -> None:
        """Forget what arrived. Answers stay as they are."""
        self.requests.clear()

    def raise_failure(self) -> None:
        """Raise what a function that answers has raised, once."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def result_of(self, callback: Callback) -> CallbackResult:
        request = _received(callback, self._clock.now())
        self.requests.append(request)
        return _result(callback, self._response_to(request))

    def _response_to(self, request: Received) -> Response:
        answers = self._by_url.get(request.url, self._default)
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if callable(answer):
            try:
                answer = answer(request)
            except Exception as error:  # the test's own: it is to see it
                self._failure = self._failure or error
                answer = 500
        return Response(answer) if isinstance(answer, int) else answer


def _checked(answers: Sequence[Scripted]) -> list[Scripted]:
    if not answers:
        raise ValueError("give one answer at least")
    return list(answers)


def _received(callback: Callback, at: datetime) -> Received:
    headers: dict[str, str] = {}
    for line in callback.headers:
        name, _, value = line.partition(":")
        headers[name.removesuffix(";").lower()] = value.strip()
    return Received(round_down(at), str(callback.method), callback.url, headers, callback.body or b"")


def _timer_id(request: Received) -> str | None:
    try:
        return str(request.timer_id)
    except (ValueError, LookupError, TypeError):  # a service call's request may be anything
        return None


def _result(callback: Callback, response: Response) -> CallbackResult:
    limit = callback.timeout_seconds
    seconds = limit if response.delay is None else response.delay.total_seconds()
    if seconds >= limit and response.status is not None:
        response, seconds = hang(), limit
    if response.status is None:
        message = "timed out" if response.error is TransportError.TIMEOUT else "the connection was refused"
        return CallbackResult(callback.key, None, b"", None, response.error, message, seconds)
    lines = [f"HTTP/1.1 {response.status} {_phrase(response.status)}"]
    lines += [f"{name}: {value}" for name, value in response.headers.items()]
    retry_after = next((value for name, value in response.headers.items() if name.lower() == "retry-after"), None)
    return CallbackResult(
        key=callback.key,
        status=response.status,
        body=response.body[:MAX_RESPONSE_BYTES],
        retry_after=retry_after,
        error=None,
        message="",
        duration_seconds=seconds,
        body_truncated=len(response.body) > MAX_RESPONSE_BYTES,
        head=tuple(f"{line}\r\n".encode("latin-1") for line in lines),
    )


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Status"
