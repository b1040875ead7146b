"""Whether a request that went wrong is sent again, and when."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from duetime_client.errors import (
    ApiError,
    Conflict,
    DuetimeError,
    InvalidArgument,
    NotFound,
    Throttled,
    Unavailable,
    Unreachable,
)
from duetime_client.values import duration

_NOTHING_WAS_DONE: Final = frozenset({"namespace_resharding", "store_not_ready", "too_many_streams"})
"""Codes of a 503 to a request that was not carried out."""
_STORE_THROTTLED: Final = "store_throttled"
"""The code of a 429 that is not a gateway's."""
_IN_USE: Final = "idempotency_key_in_use"
"""The code of a 409: an earlier try is still being carried out."""
_GONE: Final = frozenset(
    {
        "api_key_not_found",
        "event_webhook_not_found",
        "secret_not_found",
        "service_call_not_found",
        "timer_not_found",
    }
)
"""Codes of what can be removed. A namespace, a tenant or a route that is not found was never there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """``max_tries`` counts the first one. Waits double from ``first_wait`` to ``max_wait``, each shortened by up to
    half by chance. A server that asks for more than ``max_wait`` (``Retry-After``) is not waited for.
    """

    max_tries: int = 4
    first_wait: timedelta = timedelta(milliseconds=250)
    max_wait: timedelta = timedelta(seconds=20)

    def __post_init__(self) -> None:
        """Raise ``InvalidArgument``."""
        if not isinstance(self.max_tries, int) or self.max_tries < 1:
            raise InvalidArgument("max_tries: must be a whole number, 1 or more")
        duration("first_wait", self.first_wait)
        duration("max_wait", self.max_wait)


DEFAULT_RETRIES: Final = Retries()
NO_RETRIES: Final = Retries(max_tries=1)


class Tries:
    """The tries of one request. ``may_be_second``: one that has failed may have been carried out all the same."""

    def __init__(self, retries: Retries, random: Callable[[], float]) -> None:
        self.may_be_second = False
        self._retries = retries
        self._random = random
        self._number = 1

    def wait_seconds(self, error: DuetimeError) -> float:
        """Return how long to wait before the next try. Raises ``error`` when there is to be none."""
        retry_after = error.retry_after if isinstance(error, ApiError) else None
        if (
            self._number >= self._retries.max_tries
            or not _is_worth_another(error)
            or (retry_after is not None and retry_after > self._retries.max_wait)
        ):
            raise error
        wait = backoff_seconds(self._retries, self._number, self._random())
        if retry_after is not None:
            wait = max(wait, retry_after.total_seconds())
        self._number += 1
        self.may_be_second = self.may_be_second or _may_have_been_done(error)
        return wait


def backoff_seconds(retries: Retries, failures: int, random: float) -> float:
    """Return how long to wait after so many failures in a row, from 1; ``random`` lies in [0, 1)."""
    first, most = retries.first_wait.total_seconds(), retries.max_wait.total_seconds()
    return float(min(first * 2 ** min(failures - 1, 32), most)) * (1 - random / 2)


def is_gone(error: DuetimeError, *, may_be_second: bool) -> bool:
    """Tell whether a removal has found nothing because it was carried out before."""
    return may_be_second and isinstance(error, NotFound) and error.code in _GONE


def _is_worth_another(error: DuetimeError) -> bool:
    is_in_use = isinstance(error, Conflict) and error.code == _IN_USE
    return is_in_use or isinstance(error, Unreachable | Unavailable | Throttled)


def _may_have_been_done(error: DuetimeError) -> bool:
    if isinstance(error, Unreachable):
        return error.may_have_been_done
    if isinstance(error, Throttled):
        return error.code == _STORE_THROTTLED
    return isinstance(error, Unavailable) and error.code not in _NOTHING_WAS_DONE
