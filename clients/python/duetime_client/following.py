"""Events of a service call as they happen: what to ask for, what came, when to come back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from duetime_client.call_models import CallEvent
from duetime_client.decoding import decode
from duetime_client.errors import ApiError, DuetimeError, Throttled, Unavailable, UnexpectedAnswer, Unreachable
from duetime_client.requests import JSON, Answer, Request
from duetime_client.retrying import Retries, backoff_seconds
from duetime_client.sse import EVENT_STREAM, Decoder, Message
from duetime_client.values import read_json


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPage:
    """``complete``: the call has finished, and there are no further events."""

    items: tuple[CallEvent, ...]
    next_after: int
    complete: bool


POLL_SECONDS: Final = 1.0
"""Between two questions to a server that has no stream."""
MIN_PATIENCE: Final = 5
"""Failures in a row after which it is given up, unless retries allow for more."""


class Following:
    """``is_over``: there will be no further events, or one was of the last type.

    A connection that ends is made again, behind the last event that was seen.
    """

    def __init__(self, path: str, *, after: int, retries: Retries, random: Callable[[], float]) -> None:
        self.is_over = False
        self._path = path
        self._after = after
        self._retries = retries
        self._random = random
        self._failures = 0
        self._wait_seconds = POLL_SECONDS
        self._is_polling = False
        self._decoder = Decoder()

    def request(self) -> Request[None]:
        """Return the request for the next connection."""
        self._decoder = Decoder()
        self._wait_seconds = POLL_SECONDS
        accept = JSON if self._is_polling else f"{EVENT_STREAM}, {JSON};q=0.5"
        return Request(
            operation="listEvents",
            method="GET",
            path=self._path,
            headers={"accept": accept, "last-event-id": str(self._after)},
            read=lambda _: None,
        )

    def is_stream(self, content_type: str) -> bool:
        return EVENT_STREAM in content_type

    def stream_events(self, content: bytes) -> Iterator[CallEvent]:
        """Return what is new in a part of a stream. Raises ``UnexpectedAnswer`` when it is none of ours."""
        self._failures = 0
        try:
            for message in self._decoder.feed(content):
                if message.event == "end":
                    self.is_over = True
                    return
                yield from self._new([_event(message)])
        except (ValueError, TypeError) as error:
            raise UnexpectedAnswer(f"a stream that is not understood: {error}", status=200) from None
        if self._decoder.retry_seconds is not None:
            self._wait_seconds = self._decoder.retry_seconds

    def answer_events(self, answer: Answer) -> Iterator[CallEvent]:
        """Return what is new in an answer that is no stream. Raises what it says if it is not good.

        A list is asked for again at once while there is more.
        """
        error = answer.error()
        if error is not None:
            raise error
        if answer.status == 204:
            self.is_over = True
            return
        page = answer.as_a(EventPage)
        self._failures = 0
        self._wait_seconds = 0.0 if page.items else POLL_SECONDS
        yield from self._new(page.items)
        self.is_over = page.complete

    def failed(self, error: DuetimeError) -> None:
        """Raise ``error`` when it is no use to come back."""
        if not isinstance(error, Unreachable | Unavailable | Throttled):
            raise error
        self._failures += 1
        retry_after = error.retry_after if isinstance(error, ApiError) else None
        is_too_long = retry_after is not None and retry_after > self._retries.max_wait
        if is_too_long or self._failures >= max(MIN_PATIENCE, self._retries.max_tries):
            raise error
        if isinstance(error, ApiError) and error.code == "too_many_streams":
            self._is_polling = True
        wait = backoff_seconds(self._retries, self._failures, self._random())
        self._wait_seconds = max(wait, retry_after.total_seconds() if retry_after else 0.0)

    def wait_seconds(self) -> float:
        """Return how long to wait before the next connection."""
        return self._wait_seconds

    def _new(self, events: Sequence[CallEvent]) -> Iterator[CallEvent]:
        for event in events:
            if event.sequence > self._after:
                self._after = event.sequence
                yield event


def _event(message: Message) -> CallEvent:
    return decode(CallEvent, read_json(message.data.encode()))
