"""Events of failed timers on one machine: each one a POST to the operator's own URL.

The egress guard does not apply: whoever sets the variable runs the machine. The URL may carry a secret, so it is
never logged, and user information in it is sent as a header.
"""

from __future__ import annotations

import threading
from base64 import b64encode
from collections.abc import Callable, Sequence
from urllib.parse import unquote, urlsplit, urlunsplit

from duetime import __version__
from duetime.delivery.port import Callback, CallbackResult
from duetime.delivery.sender_thread import SenderThread
from duetime.domain.events import Event, EventsUndelivered

TIMEOUT_SECONDS = 3.0
"""The total deadline of one POST; below the engine's patience."""
_GRACE_SECONDS = 1.0
MAX_CONNECTIONS = 16


class HookEvents:
    """``FailureEvents`` of the engine. A response of 2xx takes an event; anything else is tried again."""

    def __init__(self, url: str, make_sender: Callable[[], SenderThread]) -> None:
        """``make_sender`` makes a sender that connects anywhere; it is called for the first event."""
        self._url, self._authorization = _without_user(url)
        self._make_sender = make_sender
        self._sender: SenderThread | None = None
        self._publishing = threading.Lock()
        self._changed = threading.Condition()
        self._results: dict[int, CallbackResult] = {}
        self._last_key = 0
        self._is_closed = False

    def publish(self, events: Sequence[Event]) -> None:
        """Post the events. Raises ``EventsUndelivered``. From any thread: one at a time."""
        with self._publishing:
            self._publish(events)

    def _publish(self, events: Sequence[Event]) -> None:
        if self._sender is None:
            self._sender = self._make_sender()
            self._sender.start(self._take)
        first = self._last_key + 1
        self._last_key += len(events)
        keys = range(first, self._last_key + 1)
        with self._changed:
            self._results.clear()  # what came too late for an earlier call
        self._sender.submit([self._post(event, key) for event, key in zip(events, keys, strict=True)])
        with self._changed:
            self._changed.wait_for(
                lambda: self._is_closed or all(key in self._results for key in keys),
                TIMEOUT_SECONDS + _GRACE_SECONDS,
            )
            results = [self._results.get(key) for key in keys]
        left = [event for event, result in zip(events, results, strict=True) if not _is_taken(result)]
        if left:
            raise EventsUndelivered(next(_reason(result) for result in results if not _is_taken(result)), left)

    def close(self) -> None:
        """Cancel requests in flight: their events are not taken."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if self._sender is not None:
            self._sender.close()

    def _post(self, event: Event, key: int) -> Callback:
        headers = (
            "Content-Type: application/json",
            f"User-Agent: Duetime/{__version__}",
            f"webhook-id: {event.event_id}",
            *self._authorization,
        )
        return Callback(
            key=key, url=self._url, headers=headers, body=event.to_json().encode(), timeout_seconds=TIMEOUT_SECONDS
        )

    def _take(self, results: list[CallbackResult]) -> None:
        """Take results, in the sender's thread."""
        with self._changed:
            self._results.update((result.key, result) for result in results)
            self._changed.notify_all()


def _is_taken(result: CallbackResult | None) -> bool:
    return result is not None and result.status is not None and 200 <= result.status < 300


def _reason(result: CallbackResult | None) -> str:
    """Describe a failure, without its message, which may quote the URL."""
    if result is None:
        return "no answer in time"
    return f"status {result.status}" if result.status is not None else str(result.error)


def _without_user(url: str) -> tuple[str, tuple[str, ...]]:
    """Return the URL without user information and fragment, and the header that stands for the former."""
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    plain = urlunsplit((parts.scheme, host, parts.path or "/", parts.query, ""))
    if not at:
        return plain, ()
    name, _, password = user.partition(":")
    token = b64encode(f"{unquote(name)}:{unquote(password)}".encode()).decode()
    return plain, (f"Authorization: Basic {token}",)
