"""The numbers that govern a poller. ``runtime.settings`` reads them from the environment."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """All times in seconds.

    ``lease_seconds``: how long a claim lasts unless renewed; renewed at a third of it, trusted until
    ``skew_margin_seconds`` before its end. A dead poller's shards are taken over after at most this time.
    ``keep_interval_seconds``: how often ownership is looked after (claims, hand-over, lost leases).
    ``poll_interval_seconds``: the longest that a timer stored by another process goes unseen; a shard that had
    something to do lately is polled more often, down to ``min_poll_interval_seconds``.
    ``page_size``: timers per read. ``poll_concurrency``: reads in flight at once.
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
    ``reschedule_floor_seconds``: a receiver cannot ask for the next firing sooner than that.
    ``park_after_seconds``: a callback still in flight after this time is parked, to be fired again
    ``park_margin_seconds`` after its own deadline unless its response is recorded first.
    ``record_batch_size``, ``record_linger_seconds``, ``record_concurrency``: how outcomes are batched.
    ``drain_seconds``: how long a stop waits for callbacks in flight.
    ``fired_retention_seconds``, ``failed_retention_seconds``: how long finished timers stay readable.
    ``attempt_excerpt_bytes``: how much of a response's body the attempt log keeps,
    a quarter of it of a success; 0 for none.
    ``prune_interval_seconds``: how often expired timers are deleted where the database does not do it.
    ``backoff_seconds``, ``max_backoff_seconds``: pause after a store error, doubled each time, with jitter.
    """

    lease_seconds: float = 10.0
    skew_margin_seconds: float = 1.0
    keep_interval_seconds: float = 0.5
    poll_interval_seconds: float = 0.8
    min_poll_interval_seconds: float = 0.4
    page_size: int = 500
    poll_concurrency: int = 1
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
    reschedule_floor_seconds: float = 1.0
    park_after_seconds: float = 2.0
    park_margin_seconds: float = 5.0
    record_batch_size: int = 500
    record_linger_seconds: float = 0.05
    record_concurrency: int = 1
    drain_seconds: float = 30.0
    fired_retention_seconds: float = 7 * 86_400.0
    failed_retention_seconds: float = 30 * 86_400.0
    attempt_excerpt_bytes: int = 256
    prune_interval_seconds: float = 60.0
    backoff_seconds: float = 0.1
    max_backoff_seconds: float = 5.0

    def __post_init__(self) -> None:
        if self.skew_margin_seconds >= self.lease_seconds / 2:
            raise ValueError("skew_margin_seconds must be less than half of lease_seconds")

    @property
    def max_connections(self) -> int:
        """The most callbacks that are ever in flight at once."""
        return self.max_in_flight + self.max_slow_in_flight

    def backoff_after(self, errors: int, random: float) -> float:
        """Seconds to wait after ``errors`` (1 or more) store errors in a row; ``random`` in [0, 1)."""
        exponential = self.backoff_seconds * 2.0 ** min(errors - 1, 16)
        return float(min(exponential, self.max_backoff_seconds) * (0.5 + random / 2))
