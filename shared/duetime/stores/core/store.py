"""The store: every operation that Duetime asks of a database, in seven parts.

The docstrings of the parts are the contract: of ``TimerStore``, ``core.leases.LeaseStore`` and so on. The modules of
``stores.port`` have what they take and return.

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
  (timer_codec.py), a namespace and an API key say so (``unreadable``); a list never ends in an error for them.

``duetime.testing.contract`` proves each sentence for each store.
"""

from __future__ import annotations

from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING

from duetime.stores.backend import Backend
from duetime.stores.core.catalogue import Catalogue
from duetime.stores.core.due import Due
from duetime.stores.core.leases import LeaseStore
from duetime.stores.core.lists import Lists
from duetime.stores.core.recording import Recording
from duetime.stores.core.schedules import ScheduleStore
from duetime.stores.core.timer_changes import TimerChanges
from duetime.stores.time_source import StoreTime

if TYPE_CHECKING:
    from duetime.stores.core.calls import CallStore
    from duetime.stores.core.outbox import Outbox
    from duetime.stores.core.transfer import TransferStore


class TimerStore(TimerChanges, Due, Recording, Lists):
    """Timers. Each base has the operations of one side of them; the rules for all stand above."""


class Store:
    """All parts are in one database: a call, its timer and its events change in one transaction.

    The parts of service calls are made when they are first asked for: the timers API does without them, and imports
    cost cold start.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.timers = TimerStore(backend)
        self.leases = LeaseStore(backend)
        self.schedules = ScheduleStore(backend)
        self.catalogue = Catalogue(backend)

    @cached_property
    def calls(self) -> CallStore:
        from duetime.stores.core.calls import CallStore

        return CallStore(self.backend)

    @cached_property
    def outbox(self) -> Outbox:
        from duetime.stores.core.outbox import Outbox

        return Outbox(self.backend)

    @cached_property
    def transfer(self) -> TransferStore:
        from duetime.stores.core.transfer import TransferStore

        return TransferStore(self.backend, self.catalogue)

    def initialise(self) -> None:
        """Create or migrate tables. Idempotent and safe when several processes start at once."""
        self.backend.initialise()

    def check(self) -> None:
        """Make one cheap round trip. Raises ``StoreUnavailable`` or ``StoreNotReady``."""
        self.backend.check()

    def close(self) -> None:
        """Release connections. Idempotent."""
        self.backend.close()

    def time(self, *, now: datetime) -> StoreTime:
        """Tell what the clock reads that leases are judged by, without waiting for a lock: the database's.

        ``now`` stands for it with ``TimeSource.CALLER``, and where a database tells no time.
        """
        return self.backend.time(now=now)
