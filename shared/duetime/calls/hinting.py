"""The call store with a bell: whoever writes events through it wakes the dispatcher of this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from duetime.domain.call_events import CallEvent
from duetime.domain.call_steps import Transition
from duetime.stores.port.calls import ApplyStatus, CallStore, DeleteStatus


class Bell:
    """Rings nobody until it is connected, since what rings is made before what is woken."""

    def __init__(self) -> None:
        self._listener: Callable[[], None] | None = None

    def connect(self, listener: Callable[[], None]) -> None:
        """``listener`` must be safe to call from any thread."""
        self._listener = listener

    def ring(self) -> None:
        if self._listener is not None:
            self._listener()


class RingingCallStore:
    """A ``CallStore``: the one that it is given, but that whatever writes events rings."""

    def __init__(self, calls: CallStore, bell: Bell) -> None:
        self._calls = calls
        self._bell = bell
        self.get = calls.get
        self.find_by_idempotency_key = calls.find_by_idempotency_key
        self.list = calls.list
        self.get_execution = calls.get_execution
        self.list_executions = calls.list_executions
        self.list_events = calls.list_events
        self.prune = calls.prune

    def delete(
        self,
        tenant_id: str,
        call_id: str,
        *,
        now: datetime,
        if_revision: int | None = None,
        event: CallEvent | None = None,
    ) -> DeleteStatus:
        status = self._calls.delete(tenant_id, call_id, now=now, if_revision=if_revision, event=event)
        if event is not None and status is DeleteStatus.DELETED:
            self._bell.ring()
        return status

    def apply(self, transitions: Sequence[Transition], *, now: datetime) -> list[ApplyStatus]:
        statuses = self._calls.apply(transitions, now=now)
        if any(
            status is ApplyStatus.APPLIED and transition.events
            for status, transition in zip(statuses, transitions, strict=True)
        ):
            self._bell.ring()
        return statuses


def ringing(calls: CallStore, bell: Bell) -> CallStore:
    return RingingCallStore(calls, bell)
