"""``stores.port.calls.CallStore`` over a backend: each base has the operations of one side of it."""

from __future__ import annotations

from duetime.stores.core.call_lists import CallLists
from duetime.stores.core.calls import Calls


class CallStore(Calls, CallLists):
    pass
