"""A store as the contract suite sees it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from duetime.domain.service_calls import ServiceCall
from duetime.domain.timers import Timer
from duetime.stores.core.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A store under test and what the suite must know about it.

    ``corrupt`` makes the stored row of a timer undecodable but leaves it in the due index.
    ``reopen`` gives another store object on the same data, as another process would have; None where there
    is no such thing. Lease and audit times must come from the ``now`` that is passed.
    """

    store: Store
    corrupt: Callable[[Timer], None]
    corrupt_call: Callable[[ServiceCall], None] | None = None
    """The same for a service call's row, which stays in all its lists, with its timer and events."""
    reopen: Callable[[], Store] | None = None
    is_thread_safe: bool = True
    """False for an emulator that lets two concurrent conditional writes win."""
    checks_leases: bool = True
    """``record`` answers LEASE_LOST (a store with transactions)."""
    expires_by_itself: bool = False
    """The database removes expired timers; ``timers.prune`` has nothing to do."""
    events_expire_by_themselves: bool = False
    """The same for published events; ``calls.prune`` sees to calls alone."""
    expire_events: Callable[[datetime], None] | None = None
    """Remove those events now that the database would have removed by that time."""
