"""Many items in one request: a part at a time, for as long as the request may take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from duetime.domain.clock import Clock
from duetime.domain.errors import DuetimeError, StoreNotReady, StoreUnavailable

AT_ONCE: Final = 50
BUDGET_SECONDS: Final = 10.0
"""Large items make a request slow: those that are not reached in this time are left to another one."""

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


def in_parts(
    items: Sequence[ItemT],
    act: Callable[[Sequence[ItemT]], Sequence[ResultT | DuetimeError]],
    *,
    clock: Clock,
    at_once: int = AT_ONCE,
) -> list[ResultT | DuetimeError]:
    """Run ``act`` on ``at_once`` items at a time; return a result per item, ``StoreUnavailable`` for those not
    reached.

    Raises what keeps the first part from being done. What keeps a later one is the result of its items.
    """
    results: list[ResultT | DuetimeError] = []
    deadline = clock.monotonic() + BUDGET_SECONDS
    for start in range(0, len(items), at_once):
        part = items[start : start + at_once]
        if clock.monotonic() > deadline:
            results += [StoreUnavailable("this request took too long to reach this item: send it again")] * len(part)
            continue
        try:
            results += act(part)
        except (StoreUnavailable, StoreNotReady) as error:
            if not results:
                raise
            results += [error] * len(part)
    return results
