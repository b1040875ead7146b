"""The retry policy: how often, how long and how far apart."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from duetime.domain.times import MAX_INSTANT, parse_duration, round_up

MAX_ATTEMPTS = 1000
MIN_RETRY_AFTER_SECONDS = 0.0
MAX_RETRY_AFTER_SECONDS = 6 * 3600.0
"""The most that the HTTP client reports (docs/decisions/0040-libcurl-for-callbacks.md)."""
_JITTER = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """``max_attempts`` counts the first try. ``max_attempts_duration_seconds`` is measured from the due time, or from
    a later redrive."""

    max_attempts: int = 10
    max_attempts_duration_seconds: float | None = 86_400.0
    initial_interval_seconds: float = 2.0
    backoff_multiplier: float = 2.0
    max_interval_seconds: float = 3600.0

    def interval_seconds(self, attempts: int) -> float:
        """The wait after ``attempts`` failed attempts, before jitter. Never overflows."""
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
        execute_at: datetime,
        now: datetime,
        random: float,
        retry_after_seconds: float | None = None,
    ) -> datetime | None:
        """When to try again after ``attempts`` failed attempts, or None when the policy is exhausted.

        ``execute_at`` is what ``max_attempts_duration_seconds`` counts from (``Timer.armed_at``).
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
        if at > MAX_INSTANT or (limit is not None and (at - execute_at).total_seconds() > limit):
            return None
        return at


DEFAULT_RETRY_POLICY = RetryPolicy()

_DURATIONS = {
    "maxAttemptsDuration": "max_attempts_duration_seconds",
    "initialInterval": "initial_interval_seconds",
    "maxInterval": "max_interval_seconds",
}


def parse_retry_policy(value: Mapping[str, Any], *, ignores_unknown: bool = False) -> RetryPolicy:
    """The policy that the JSON object ``value`` describes; what it omits has its default.

    ``ignores_unknown``: fields that no policy has are passed over, as a newer version may have stored them.

    Raises ``ValueError`` whose first argument is ``(field, message)``.
    """
    fields: dict[str, Any] = {}
    for name, given in value.items():
        try:
            if name in _DURATIONS:
                fields[_DURATIONS[name]] = parse_duration(given)
            elif name == "maxAttempts":
                if isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= MAX_ATTEMPTS:
                    raise ValueError(f"must be a whole number from 1 to {MAX_ATTEMPTS}")
                fields["max_attempts"] = given
            elif name == "backoffMultiplier":
                if isinstance(given, bool) or not isinstance(given, int | float) or not 1 <= given <= 100:
                    raise ValueError("must be a number from 1 to 100")
                fields["backoff_multiplier"] = float(given)
            elif not ignores_unknown:
                raise ValueError("is not a field of a retry policy")
        except ValueError as error:
            raise ValueError((name, str(error))) from None
    return RetryPolicy(**fields)


def read_retry_policy(retry_policy_json: str | None) -> RetryPolicy:
    """The stored policy; the default for none. It was validated when it was accepted, by whichever version.

    Raises ``ValueError`` for damaged text.
    """
    if retry_policy_json is None:
        return DEFAULT_RETRY_POLICY
    try:
        value = json.loads(retry_policy_json)
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("is not an object")
    return parse_retry_policy(value, ignores_unknown=True)
