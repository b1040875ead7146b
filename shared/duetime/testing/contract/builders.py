"""Namespaces, timers and outcomes for tests, with defaults for whatever a test does not care about."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import count, islice
from typing import Any

from duetime.domain.namespaces import Namespace
from duetime.domain.outcomes import LeasedOutcome, Outcome
from duetime.domain.shards import Lease
from duetime.domain.timers import (
    Failure,
    FailureReason,
    Timer,
    TimerContent,
    TimerState,
    content_digest,
    new_timer,
)

NOW = datetime(2026, 12, 20, 15, 30, tzinfo=UTC)
"""The instant at which tests begin."""
RETENTION = timedelta(days=7)
UNSTORABLE = {"nul": "a\0b", "half a pair": "\ud800", "a byte": "caf\udce9", "long": "x" * 10_000}
"""Texts that some database refuses as a key."""
_firings = count(1)


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


def make_namespace(
    name: str = "orders", *, num_shards: int = 4, first_shard: int = 0, dedicated: bool = False
) -> Namespace:
    """Make a namespace that no store knows of."""
    return Namespace(name, num_shards=num_shards, first_shard=first_shard, dedicated=dedicated, created_at=NOW)


def make_content(*, execute_at: datetime = NOW, **fields: Any) -> TimerContent:
    return TimerContent(execute_at=execute_at, **({"callback_url": "http://receiver.test/callback"} | fields))


def make_timer(
    namespace: Namespace,
    timer_id: str = "t1",
    *,
    execute_at: datetime = NOW,
    now: datetime = NOW,
    firing_id: str | None = None,
    **content_fields: Any,
) -> Timer:
    """Return the first revision of a timer, with a ``firing_id`` of its own unless one is given."""
    content = make_content(execute_at=execute_at, **content_fields)
    return new_timer(
        namespace,
        timer_id,
        content,
        digest=content_digest(content),
        firing_id=firing_id or f"firing-{next(_firings)}",
        now=now,
    )


def make_timers(namespace: Namespace, number: int, *, prefix: str = "t", **fields: Any) -> list[Timer]:
    """Return ``number`` timers, ids ``t0000``, ``t0001``..."""
    return [make_timer(namespace, f"{prefix}{index:04}", **fields) for index in range(number)]


def ids_of_shard(namespace: Namespace, shard_id: int, number: int = 1) -> list[str]:
    """Ids of timers that live on one shard of the namespace."""
    ids = (f"t{each}" for each in count())
    return list(islice((timer_id for timer_id in ids if namespace.shard_of(timer_id) == shard_id), number))


def make_failure(*, at: datetime = NOW, status: int | None = 503) -> Failure:
    return Failure(FailureReason.HTTP_STATUS, "the receiver answered 503", at, status)


def lease_among(leases: Iterable[Lease], shard_id: int) -> Lease:
    """Return that of the shard; nobody's when there is none."""
    return next((lease for lease in leases if lease.shard_id == shard_id), Lease(shard_id, 0, "nobody", NOW))


def leased(outcomes: Iterable[Outcome], *leases: Lease) -> list[LeasedOutcome]:
    """Return each outcome with the lease of its shard, or with nobody's."""
    return [LeasedOutcome(outcome, lease_among(leases, outcome.timer.shard_id)) for outcome in outcomes]


def _outcome(timer: Timer, state: TimerState, **others: Any) -> Outcome:
    """Of one more attempt, which leaves what is not given as it is."""
    same: dict[str, Any] = {
        "attempts": timer.attempts + 1,
        "execute_at": timer.content.execute_at,
        "firing_id": timer.firing_id,
    }
    return Outcome(timer=timer, state=state, **{"next_attempt_at": None, **same, **others})


def fired(timer: Timer, *, at: datetime = NOW) -> Outcome:
    return _outcome(timer, TimerState.FIRED, fired_at=at, expires_at=at + RETENTION)


def retried(timer: Timer, *, next_attempt_at: datetime, at: datetime = NOW) -> Outcome:
    return _outcome(timer, TimerState.SCHEDULED, next_attempt_at=next_attempt_at, failure=make_failure(at=at))


def rescheduled(timer: Timer, *, execute_at: datetime, at: datetime = NOW) -> Outcome:
    return _outcome(
        timer,
        TimerState.SCHEDULED,
        attempts=0,
        execute_at=execute_at,
        next_attempt_at=execute_at,
        firing_id=f"{timer.firing_id}-next",
        fired_at=at,
    )


def waiting(timer: Timer, *, until: datetime, attempt_log: str | None = None) -> Outcome:
    return _outcome(
        timer,
        TimerState.WAITING,
        attempts=timer.attempts,
        next_attempt_at=until,
        fired_at=timer.fired_at,
        failure=timer.failure,
        attempt_log=attempt_log,
    )


def parked(timer: Timer, *, until: datetime) -> Outcome:
    return _outcome(timer, TimerState.FIRING, next_attempt_at=until)


def failed(timer: Timer, *, at: datetime = NOW) -> Outcome:
    return _outcome(timer, TimerState.FAILED, failure=make_failure(at=at), expires_at=at + RETENTION)
