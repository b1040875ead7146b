"""Pages of due timers that are not all wanted: a store looks at a few values of many, and reads some of them whole.

What the stores have alike who do that (``is_wanted`` of ``TimerStore.due``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from duetime.domain.timers import TimerState, is_too_late
from duetime.stores.port.timers import IsWanted

R = TypeVar("R")

LOOKED_AT = (
    "timer_namespace",
    "timer_callback_url",
    "timer_state",
    "timer_due_at",
    "timer_rearmed_at",
    "timer_expire_after_ms",
)
"""The stored attributes that a ``Glance`` is made of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Glance:
    """What is looked at of a due timer; what cannot be read is None."""

    namespace: str | None
    callback_url: str | None
    state: str | None
    execute_at: datetime | None
    rearmed_at: datetime | None
    expire_after_ms: int | None

    def is_for_page(self, is_wanted: IsWanted, until: datetime) -> bool:
        """Whether a page must have it: whoever cannot tell reads it whole."""
        if self.namespace is None or self.callback_url is None or self.state != TimerState.SCHEDULED:
            return True
        if self.expire_after_ms is not None:
            armed_at = max((at for at in (self.execute_at, self.rearmed_at) if at is not None), default=None)
            if armed_at is None or is_too_late(armed_at, self.expire_after_ms, until):
                return True
        return is_wanted(self.namespace, self.callback_url)


def first_that_fit(rows: Iterable[R], fits: Callable[[R], bool], limit: int) -> tuple[list[R], bool]:
    """Up to ``limit`` of the rows, and whether others that fit may follow them."""
    found: list[R] = []
    for row in rows:
        if len(found) == limit:
            return found, True
        if fits(row):
            found.append(row)
    return found, False
