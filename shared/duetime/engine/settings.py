"""The numbers that govern a poller. ``runtime.settings`` reads them from the environment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SKEW_MARGIN_SECONDS: Final = 1.0
"""How long before its end a lease is no longer trusted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """All times in seconds.

    ``lease_seconds``: how long a claim lasts unless renewed, more than twice ``SKEW_MARGIN_SECONDS``; renewed at a
    third of it. A dead poller's shards are taken over after at most this time.
    ``keep_interval_seconds``: how often ownership is looked after (claims, hand-over, lost leases).
    ``poll_interval_seconds``: the longest that a timer stored by another process goes unseen; a shard that had
    something to do lately is polled more often, down to ``min_poll_interval_seconds``.
    ``page_size``: timers per read. ``poll_concurrency``: reads in flight at once.
    ``quick_read_seconds``: where the last reads took no longer and there is no backlog, the next ones are made in the
    event loop, without a thread; 0: never.
    ``max_in_flight``: callbacks in flight at once, not counting up to ``max_slow_in_flight`` that have been so for
    longer than ``slow_after_seconds``: those that hang must not keep the others waiting.
    ``max_in_flight_per_namespace``, ``max_in_flight_per_host``: of both kinds together; of a host, a namespace has
    three quarters at most. Each host of a namespace begins with ``initial_window``, or with the namespace's own limit
    where it has one, and earns one with every response.
    ``max_buffered``: timers read and waiting for their turn. ``max_wait_seconds``: one that was read longer ago is
    read again before it is fired, for it may have been changed or cancelled.
    ``max_payload_bytes``: payloads, but for small ones, of the timers that wait, are in flight or are not recorded;
    half as much is read at once.
    ``breaker_failures``: so many failures of a host in a row (no response, or 502, 503, 504 for a second) stop it for
    ``breaker_pause_seconds``, doubled with every probe that fails up to ``breaker_max_pause_seconds``.
    ``park_after_seconds``: a callback still in flight after this time is parked, to be fired again some seconds
    after its own deadline unless its response is recorded first.
    ``record_batch_size``, ``record_linger_seconds``, ``record_concurrency``: how outcomes are batched.
    ``drain_seconds``: how long a stop waits for callbacks in flight.
    ``fired_retention_seconds``, ``failed_retention_seconds``: how long finished timers stay readable.
    ``metrics_namespaces``: those with figures of their own (``NamespaceStats``).
    ``attempt_excerpt_bytes``: how much of a response's body the attempt log keeps,
    a quarter of it of a success; 0 for none.
    ``prune_interval_seconds``: how often expired timers are deleted where the database does not do it.
    ``public_url``: the API's URL for receivers, without a slash at the end; empty: callbacks have no ``ackUrl``.
    """

    lease_seconds: float = 10.0
    keep_interval_seconds: float = 0.5
    poll_interval_seconds: float = 0.8
    min_poll_interval_seconds: float = 0.4
    page_size: int = 500
    poll_concurrency: int = 1
    quick_read_seconds: float = 0.0
    max_in_flight: int = 500
    max_slow_in_flight: int = 400
    slow_after_seconds: float = 0.25
    max_in_flight_per_namespace: int = 400
    max_in_flight_per_host: int = 250
    initial_window: int = 16
    max_buffered: int = 2000
    max_wait_seconds: float = 2.0
    max_payload_bytes: int = 64 * 1024 * 1024
    breaker_failures: int = 10
    breaker_pause_seconds: float = 5.0
    breaker_max_pause_seconds: float = 60.0
    park_after_seconds: float = 2.0
    record_batch_size: int = 500
    record_linger_seconds: float = 0.05
    record_concurrency: int = 1
    drain_seconds: float = 30.0
    fired_retention_seconds: float = 7 * 86_400.0
    failed_retention_seconds: float = 30 * 86_400.0
    attempt_excerpt_bytes: int = 256
    prune_interval_seconds: float = 60.0
    public_url: str = ""
    metrics_namespaces: tuple[str, ...] = ()

    @property
    def max_connections(self) -> int:
        """The most callbacks that are ever in flight at once."""
        return self.max_in_flight + self.max_slow_in_flight
