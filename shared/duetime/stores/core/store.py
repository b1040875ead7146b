"""``stores.port.store.Store`` over a backend: its parts, put together."""

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
    """Timers. Each base has the operations of one side of them; the rules for all are in ``stores.port.store``."""


class CoreStore:
    """What is of service calls is made when it is first asked for: the timers API does without it, and what is
    imported is cold start."""

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
        self.backend.initialise()

    def check(self) -> None:
        self.backend.check()

    def close(self) -> None:
        self.backend.close()

    def time(self, *, now: datetime) -> StoreTime:
        return self.backend.time(now=now)
