"""``stores.port.Store`` over a backend: its parts, put together."""

from __future__ import annotations

from datetime import datetime

from duetime.stores.backend import Backend
from duetime.stores.core.call_lists import CallLists
from duetime.stores.core.calls import Calls
from duetime.stores.core.catalogue import Catalogue
from duetime.stores.core.due import Due
from duetime.stores.core.leases import Leases
from duetime.stores.core.lists import Lists
from duetime.stores.core.outbox import Outbox
from duetime.stores.core.recording import Recording
from duetime.stores.core.timer_changes import TimerChanges
from duetime.stores.core.transfer import Transfer
from duetime.stores.time_source import StoreTime


class TimerStore(TimerChanges, Due, Recording, Lists):
    """``stores.port.timers.TimerStore``; each base has the operations of one side of it."""


class CallStore(Calls, CallLists):
    """``stores.port.calls.CallStore``, likewise."""


class CoreStore:
    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.timers = TimerStore(backend)
        self.leases = Leases(backend)
        self.catalogue = Catalogue(backend)
        self.calls = CallStore(backend)
        self.outbox = Outbox(backend)
        self.transfer = Transfer(backend, self.catalogue)

    def initialise(self) -> None:
        self.backend.initialise()

    def check(self) -> None:
        self.backend.check()

    def close(self) -> None:
        self.backend.close()

    def time(self, *, now: datetime) -> StoreTime:
        return self.backend.time(now=now)
