"""What the engine hands to the HTTP side and what it gets back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Protocol

from duetime.domain.hot_dataclass import hot_dataclass
from duetime.domain.service_calls import Method

MAX_RESPONSE_BYTES = 64 * 1024
MAX_HEAD_BYTES = 8 * 1024


class TransportError(StrEnum):
    """Why there is no complete response."""

    TIMEOUT = "timeout"
    RESOLVE = "resolve"
    CONNECT = "connect"
    TLS = "tls"
    PROTOCOL = "protocol"
    REFUSED_URL = "refused_url"
    """No callback may ever go there, or can."""
    REFUSED_ADDRESS = "refused_address"
    """The host's name leads, at present, to an address that may not be called."""
    ABORTED = "aborted"
    """We gave up on it: something in the sender broke."""


@hot_dataclass(frozen=True, slots=True)
class Callback:
    """One HTTP request. ``key`` comes back with the result. ``headers`` are final: Latin-1 without CR and LF."""

    key: int
    url: str
    headers: tuple[str, ...]
    """Each one whole: ``Name: value``, or ``Name;`` for one without a value."""
    body: bytes | None
    """None: the request has no content; ``b""``: its content is empty, and says so."""
    timeout_seconds: float
    """The total deadline: resolving, connecting, sending and reading the response."""
    method: Method = Method.POST
    has_own_connection: bool = False
    """Whether it must not go over a connection that was kept from an earlier one, which may end as it is sent."""


@hot_dataclass(frozen=True, slots=True)
class CallbackResult:
    """``status`` is None exactly when ``error`` is set. ``body`` is at most MAX_RESPONSE_BYTES of the response.

    ``head`` is the status line and the header lines of the final response, raw, up to MAX_HEAD_BYTES.
    """

    key: int
    status: int | None
    body: bytes
    retry_after: str | None
    error: TransportError | None
    message: str
    duration_seconds: float
    body_truncated: bool = False
    head: tuple[bytes, ...] = ()


class Sender(Protocol):
    """Sends callbacks within the event loop. Never follows redirects, never raises for a single callback.

    Everything is called in the loop's thread and returns at once.
    """

    def start(self, on_results: Callable[[list[CallbackResult]], None]) -> None:
        """Begin in the running event loop, which calls ``on_results`` with batches, one result per callback."""
        ...

    def submit(self, callbacks: Sequence[Callback]) -> None:
        """Send callbacks; no result comes before this returns. The caller bounds how many are in flight."""
        ...

    def close(self) -> None:
        """Abort what is in flight: no results come any more. Idempotent; ``start`` may follow."""
        ...
