"""``stores.family_parts.FamilyCallStore`` on Cassandra (docs/stores/cassandra.md, decision 0020)."""

from __future__ import annotations

import time
from collections.abc import Callable

from duetime.stores.cassandra.calls.applying import Applying, LostLeases
from duetime.stores.cassandra.calls.attempts import Attempts
from duetime.stores.cassandra.calls.due import DueCalls
from duetime.stores.cassandra.calls.index import Index
from duetime.stores.cassandra.calls.janitor import Janitor
from duetime.stores.cassandra.calls.keys import SETTLE_SECONDS, Keys
from duetime.stores.cassandra.calls.listing import Listing
from duetime.stores.cassandra.calls.loading import Loading
from duetime.stores.cassandra.calls.outbox import Outbox, OutboxIndex
from duetime.stores.cassandra.calls.partition import Partitions
from duetime.stores.cassandra.calls.pruning import Pruning
from duetime.stores.cassandra.calls.reading import Reading
from duetime.stores.cassandra.requests import Requests
from duetime.stores.fair_reading import FairReading
from duetime.stores.side_by_side import Workers

DEFAULT_MAX_PARALLEL = 8


class CassandraCallStore(Applying, Pruning, Reading, Listing, Outbox, Loading):
    """Thread-safe. ``max_parallel``: changes of one operation at once, and of all operations together.

    ``lost_leases``: says which leases are not the stored ones. ``now_s``: the clock that attempts are named by.
    ``settle_seconds``: how long an idempotency key is left to a submission that does not come to its end.
    """

    def __init__(
        self,
        requests: Requests,
        *,
        lost_leases: LostLeases,
        max_parallel: int = DEFAULT_MAX_PARALLEL,
        now_s: Callable[[], float] = time.time,
        settle_seconds: float = SETTLE_SECONDS,
    ) -> None:
        self._requests = requests
        self._lost_leases = lost_leases
        self._workers = Workers(max_parallel)
        self._attempts = Attempts(now_s)
        self._partitions = Partitions(requests)
        self._index = Index(requests)
        self._janitor = Janitor(self._partitions, self._index, self._attempts)
        self._keys = Keys(requests, self._partitions, self._attempts, settle_seconds=settle_seconds)
        self._outbox_index = OutboxIndex(self._partitions, self._index, self._janitor)
        self._fair = FairReading()
        self.due = DueCalls(self._partitions, self._index, self._janitor)

    def close(self) -> None:
        self._workers.close()
