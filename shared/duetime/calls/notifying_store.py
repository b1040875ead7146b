"""The call store that notifies: whoever writes events through it wakes the outbox relay of this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from duetime.domain.call_events import CallEvent
from duetime.domain.call_steps import Transition
from duetime.stores.core.calls import CallStore
from duetime.stores.port.calls import ApplyStatus, DeleteStatus


class Notifier:
    """Tells nobody until it is connected, since the store is made before the relay."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[], None]] = []

    def connect(self, listener: Callable[[], None]) -> None:
        """``listener`` must be safe to call from any thread."""
        self._listeners.append(listener)

    def notify(self) -> None:
        for listener in self._listeners:
            listener()


class NotifyingCallStore(CallStore):
    """``calls``, which notifies whenever it has written events."""

    def __init__(self, calls: CallStore, notifier: Notifier) -> None:
        super().__init__(calls._backend)
        self._notifier = notifier

    def delete(
        self,
        tenant_id: str,
        call_id: str,
        *,
        now: datetime,
        if_revision: int | None = None,
        event: CallEvent | None = None,
    ) -> DeleteStatus:
        status = super().delete(tenant_id, call_id, now=now, if_revision=if_revision, event=event)
        if event is not None and status is DeleteStatus.DELETED:
            self._notifier.notify()
        return status

    def apply(self, transitions: Sequence[Transition], *, now: datetime) -> list[ApplyStatus]:
        statuses = super().apply(transitions, now=now)
        if any(
            status is ApplyStatus.APPLIED and transition.events
            for status, transition in zip(statuses, transitions, strict=True)
        ):
            self._notifier.notify()
        return statuses
