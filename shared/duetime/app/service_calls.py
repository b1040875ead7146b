"""What the API of service calls needs beside the context of all routes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from duetime.app.submission import CallNamespaces, Submitter
from duetime.domain.call_steps import CallRules
from duetime.domain.errors import CallFinished, CallNotFound, CallRunning
from duetime.domain.ids import is_uuid
from duetime.domain.service_calls import ServiceCall
from duetime.domain.timers import Timer
from duetime.stores.port.calls import CallRef, CallStore
from duetime.stores.port.store import Store


@dataclass(frozen=True, slots=True)
class CallServices:
    """``rules`` must be those of whoever executes the calls: a change of stars decides when a call expires."""

    store: CallStore
    submitter: Submitter
    rules: CallRules

    @classmethod
    def of(
        cls,
        store: Store,
        calls: CallStore,
        *,
        rules: CallRules,
        num_shards: int,
        new_id: Callable[[], str],
        on_stored: Callable[[Sequence[Timer]], None],
    ) -> CallServices:
        """``num_shards``: of the timers of a tenant's calls, when its first one is submitted."""
        namespaces = CallNamespaces(store.catalogue, num_shards=num_shards)
        return cls(calls, Submitter(calls, namespaces, new_id=new_id, on_stored=on_stored), rules)

    def found(self, tenant_id: str, call_id: str, *, now: datetime) -> ServiceCall:
        """Raises ``CallNotFound``, also for what cannot be the id of a call."""
        if is_uuid(call_id):
            (call,) = self.store.get([CallRef(tenant_id, call_id)], now=now)
            if call is not None:
                return call
        raise CallNotFound(tenant_id, call_id)


def check_waits(call: ServiceCall, otherwise: str) -> None:
    """Raises ``CallFinished`` or ``CallRunning`` unless ``call`` waits for its due time or its next attempt."""
    if call.status.is_finished:
        raise CallFinished(f"service call {call.call_id!r} is {call.status}: {otherwise} any more")
    if not call.is_waiting:
        raise CallRunning(
            f"an execution of service call {call.call_id!r} is under way and its request may have been sent:"
            f" {otherwise} now; try again when the execution has ended"
        )
