"""The store port: every operation that Duetime asks of a database, in seven parts.

The docstrings of the parts are the contract: of ``core.store.TimerStore``, ``core.leases.LeaseStore`` and so on. The
modules beside this one have what they take and return.

Rules for all operations:

- Synchronous and thread-safe: one store object serves many threads.
- ``now`` is passed in, and callers take it from a clock that ``Store.time`` corrects (stores/store_clock.py). A store
  whose database has a clock that conditions can use takes lease and audit times from it instead
  (stores/backends/sql/dialects/db_now.py); what is due is always judged by the ``now`` or ``until`` that is passed.
- A key that the database cannot hold, for its length or a character in it, is not found, and hides no other.
- Losing a race is a return value. Errors are ``StoreUnavailable`` (try again later: unreachable, throttled,
  locked), ``StoreNotReady`` (no tables, wrong schema) and ``StoreError`` (anything else). No driver exception
  leaves a store.
- A batch has no duplicate ids in it, and each of its items succeeds or fails alone; the answer has one
  result per item, in order. An item that the database refuses for good (it is too large, say, or where it belongs is
  full) is REFUSED where the store knows which one it is. Else ``StoreError``, or ``StoreRefused``, is raised for the
  batch, and whoever called asks again with parts of it (stores/refusals.py, engine/batching.py): a store recognises
  what it has stored.
- Expired timers (``Timer.is_expired``) read as absent everywhere, whether or not they are still stored.
- One row that cannot be read harms itself alone. A timer is shown as FAILED with the reason UNREADABLE
  (core/timer_codec.py), a namespace and an API key say so (``unreadable``); a list never ends in an error for them.

``duetime.testing.contract`` proves each sentence for each store.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from duetime.stores.time_source import StoreTime

if TYPE_CHECKING:
    from duetime.stores.core.calls import CallStore
    from duetime.stores.core.catalogue import Catalogue
    from duetime.stores.core.leases import LeaseStore
    from duetime.stores.core.outbox import Outbox
    from duetime.stores.core.schedules import ScheduleStore
    from duetime.stores.core.store import TimerStore
    from duetime.stores.core.transfer import TransferStore


class Store(Protocol):
    """All parts are in one database: a call, its timer and its events change in one transaction."""

    @property
    def timers(self) -> TimerStore: ...

    @property
    def leases(self) -> LeaseStore: ...

    @property
    def schedules(self) -> ScheduleStore: ...

    @property
    def catalogue(self) -> Catalogue: ...

    @property
    def calls(self) -> CallStore: ...

    @property
    def outbox(self) -> Outbox: ...

    @property
    def transfer(self) -> TransferStore: ...

    def initialise(self) -> None:
        """Create or migrate tables. Idempotent and safe when several processes start at once."""
        ...

    def check(self) -> None:
        """One cheap round trip. Raises ``StoreUnavailable`` or ``StoreNotReady``."""
        ...

    def close(self) -> None:
        """Release connections. Idempotent."""
        ...

    def time(self, *, now: datetime) -> StoreTime:
        """What the clock reads that leases are judged by, without waiting for a lock: the database's.

        ``now`` stands for it with ``TimeSource.CALLER``, and where a database tells no time.
        """
        ...
