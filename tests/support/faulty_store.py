"""A store whose requests fail, as one poller sees it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from duetime.domain.errors import StoreUnavailable
from duetime.stores.core.calls import CallStore
from duetime.testing.virtual_time import VirtualClock
from tests.support.faulty_calls import FaultyCalls
from tests.support.parts import Intercepted
from tests.support.timed_store import TimedStore


@dataclass
class Faults:
    """How many of a poller's next requests to the store fail, before or after they are done. Until when all do."""

    clock: VirtualClock
    before: int = 0
    after: int = 0
    cut_until: float = 0.0

    @property
    def is_cut_off(self) -> bool:
        return self.clock.monotonic() < self.cut_until

    def fail_before(self, *_: Any) -> None:
        if self.is_cut_off:
            raise StoreUnavailable("cut off")
        if self.before:
            self.before -= 1
            raise StoreUnavailable("not reached")

    def fail_after(self, *_: Any) -> None:
        if self.after:
            self.after -= 1
            raise StoreUnavailable("the answer was lost")


class FaultyStore(Intercepted):
    """The store as a poller sees it."""

    _OPERATIONS = frozenset(
        {
            *("timers.record", "timers.due", "leases.renew", "leases.release", "leases.claim", "leases.statuses"),
            *("leases.announce_worker", "time"),
        }
    )

    def __init__(self, store: TimedStore, faults: Faults) -> None:
        super().__init__(store, self._operate)
        self._faults = faults
        self.calls: CallStore = FaultyCalls(store.calls, before=faults.fail_before, after=faults.fail_after)

    def _operate(self, name: str, operation: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        if name not in self._OPERATIONS:
            return operation(*arguments, **options)
        self._faults.fail_before()
        result = operation(*arguments, **options)
        self._faults.fail_after()
        return result
