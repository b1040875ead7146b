"""The hook of ordered delivery: decides the order of webhook deliveries, and what is sent in a timer's place.

Such a timer stays what every timer is: its callback comes first, what came of it is recorded afterwards, it is parked
when it takes long and becomes a dead letter at its end. An ``OrderingPolicy`` says whether its turn has come, what
is sent and what the response means, and it is told when the timer has ended or was put off. Compare
``execution_handler``, where a handler stores things by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from duetime.delivery.port import Callback, CallbackResult
from duetime.domain.outcomes import Outcome
from duetime.domain.timers import Failure, Timer
from duetime.engine.response.classify import Classification


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Exactly one is set. ``callback`` is to be sent, with a key of the engine's. ``wait_until``: the turn of the
    timer has not come, and it is due again then; that is no attempt. ``failure``: it has come to nothing."""

    callback: Callback | None = None
    wait_until: datetime | None = None
    failure: Failure | None = None


class OrderingPolicy(Protocol):
    """``takes`` and ``classify`` are called in the event loop's thread and must be quick; the others in threads,
    from several at once, with batches. After they have raised they are called again: with the same batch while the
    store cannot be used, else with parts of it, until what caused the error is alone and is left out."""

    def takes(self, namespace: str) -> bool:
        """Tell whether the timers of ``namespace`` are sent in this order."""
        ...

    def admit(self, timers: Sequence[Timer], *, now: datetime) -> list[Decision]:
        """Return one decision per timer; each is due, and there is room for it now."""
        ...

    def classify(self, result: CallbackResult, *, now: datetime) -> Classification:
        """Return what the receiver's response means for a timer that was let pass."""
        ...

    def recorded(self, outcomes: Sequence[Outcome], *, now: datetime) -> None:
        """Note what was recorded: timers that have fired or failed, and timers that were put off (SCHEDULED, no
        attempt more than before). Not called for some of them when a process dies.
        """
        ...
