"""The retry policy: how often, how long and how far apart, and who is told in the end."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

from duetime.domain.times import MAX_INSTANT, format_duration, parse_duration, round_up

MAX_ATTEMPTS = 1000
MIN_INTERVAL_SECONDS = 0.1
"""Below it, one receiver that is down would be called without a pause by every timer that it has."""
MIN_RETRY_AFTER_SECONDS = 0.0
MAX_RETRY_AFTER_SECONDS = 6 * 3600.0
"""The most that the HTTP client reports (docs/decisions/0006-libcurl-sends-the-callbacks.md)."""
_JITTER = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """``max_attempts`` counts the first try. ``max_attempts_duration_seconds`` is measured from the first attempt, or
    from a later redrive: an outage of ours costs no attempts. ``escalate_url`` is called when the timer has failed
    (``domain.escalations``); it may be the ARN of a target."""

    max_attempts: int = 10
    max_attempts_duration_seconds: float | None = 86_400.0
    initial_interval_seconds: float = 2.0
    backoff_multiplier: float = 2.0
    max_interval_seconds: float = 3600.0
    escalate_url: str | None = None

    def interval_seconds(self, attempts: int) -> float:
        """Return the wait after ``attempts`` failed attempts, before jitter. Never overflows."""
        interval = self.initial_interval_seconds
        for _ in range(min(attempts, MAX_ATTEMPTS) - 1):
            if interval >= self.max_interval_seconds or self.backoff_multiplier <= 1.0:
                break
            interval *= self.backoff_multiplier
        return min(interval, self.max_interval_seconds)

    def next_attempt_at(
        self,
        *,
        attempts: int,
        first_attempt_at: datetime,
        now: datetime,
        random: float,
        retry_after_seconds: float | None = None,
    ) -> datetime | None:
        """Return when to try again after ``attempts`` failed attempts; None if the policy is exhausted.

        ``first_attempt_at`` is what ``max_attempts_duration_seconds`` counts from.
        ``random`` in [0, 1) spreads the wait over the interval +/- 25 %. ``retry_after_seconds`` (the receiver's
        wish, clamped to 0 .. 6 h) only ever lengthens the wait.
        """
        if attempts >= self.max_attempts:
            return None
        wait = self.interval_seconds(attempts) * (1 - _JITTER + 2 * _JITTER * random)
        if retry_after_seconds is not None:
            wait = max(wait, min(max(retry_after_seconds, MIN_RETRY_AFTER_SECONDS), MAX_RETRY_AFTER_SECONDS))
        try:
            at = round_up(now + timedelta(seconds=wait))
        except OverflowError:
            return None
        limit = self.max_attempts_duration_seconds
        if at > MAX_INSTANT or (limit is not None and (at - first_attempt_at).total_seconds() > limit):
            return None
        return at


DEFAULT_RETRY_POLICY = RetryPolicy()


def _attempts(given: Any) -> int:
    if isinstance(given, float) and given.is_integer():  # 3.0 is a whole number
        given = int(given)
    if isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= MAX_ATTEMPTS:
        raise ValueError(f"must be a whole number from 1 to {MAX_ATTEMPTS}")
    return given


def _multiplier(given: Any) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not 1 <= given <= 100:
        raise ValueError("must be a number from 1 to 100")
    return float(given)


def _url(given: Any) -> str | None:
    if given is not None and not isinstance(given, str):
        raise ValueError("must be a URL")
    return given


def _arn(given: Any) -> str | None:
    if given is None:
        return None
    if not isinstance(given, dict) or given.keys() != {"arn"} or not isinstance(given["arn"], str):
        raise ValueError("must be an object with only arn")
    return str(given["arn"])


_DURATIONS = {
    "maxAttemptsDuration": "max_attempts_duration_seconds",
    "initialInterval": "initial_interval_seconds",
    "maxInterval": "max_interval_seconds",
}
_MEMBERS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    **{name: (field, parse_duration) for name, field in _DURATIONS.items()},
    "maxAttempts": ("max_attempts", _attempts),
    "backoffMultiplier": ("backoff_multiplier", _multiplier),
    "escalateUrl": ("escalate_url", _url),
    "escalateTarget": ("escalate_url", _arn),
}
"""Field and reader of each member."""


def parse_retry_policy(value: Mapping[str, Any]) -> RetryPolicy:
    """Return the policy that the JSON object ``value`` describes, as clients give it; what it omits has its default.

    Raises ``ValueError`` whose first argument is ``(field, message)``.
    """
    policy = _parsed(value, DEFAULT_RETRY_POLICY, ignores_unknown=False)
    for name in ("initialInterval", "maxInterval"):
        if getattr(policy, _DURATIONS[name]) < MIN_INTERVAL_SECONDS:
            raise ValueError((name, f"must be at least {format_duration(round(MIN_INTERVAL_SECONDS * 1000))}"))
    return policy


def _parsed(value: Mapping[str, Any], default: RetryPolicy, *, ignores_unknown: bool) -> RetryPolicy:
    fields: dict[str, Any] = {}
    for name, given in value.items():
        try:
            if name in _MEMBERS:
                field, read = _MEMBERS[name]
                member = read(given)
                if field in fields and member is not None:
                    raise ValueError("cannot be given with " + ("escalateUrl" if read is _arn else "escalateTarget"))
                if member is not None:
                    fields[field] = member
            elif not ignores_unknown:
                raise ValueError("is not a field of a retry policy")
        except ValueError as error:
            raise ValueError((name, str(error))) from None
    return replace(default, **fields)


@lru_cache(maxsize=1024)
def read_retry_policy(retry_policy_json: str | None, *, default: RetryPolicy = DEFAULT_RETRY_POLICY) -> RetryPolicy:
    """Return the stored policy; what it omits is as in ``default``, which is all of it for none.

    It was validated when it was accepted, by whichever version: fields that no policy has are passed over, and what
    is below the floor is raised to it. Raises ``ValueError`` for damaged text.
    """
    if retry_policy_json is None:
        return default
    try:
        value = json.loads(retry_policy_json)
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("is not an object")
    policy = _parsed(value, default, ignores_unknown=True)
    return replace(
        policy,
        initial_interval_seconds=max(policy.initial_interval_seconds, MIN_INTERVAL_SECONDS),
        max_interval_seconds=max(policy.max_interval_seconds, MIN_INTERVAL_SECONDS),
    )


def policy_in_force(own_json: str | None, default: RetryPolicy) -> RetryPolicy:
    """Return a timer's own policy, else ``default``, its namespace's.

    One that cannot be read is none: it must not break those who have many timers in hand.
    """
    if own_json is None:
        return default
    try:
        return read_retry_policy(own_json)
    except ValueError:
        return default
