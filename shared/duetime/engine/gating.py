"""The seam by which plain timers of internal namespaces are sent in an order, and as something else than a timer.

Such a timer stays what every timer is: its callback comes first, what came of it is recorded afterwards, it is parked
when it takes long and becomes a dead letter at its end. A ``TimerGate`` says whether its turn has come, what is sent
and what the answer means, and it is told when the timer has ended or was put off. Compare ``engine.handling``, where
a handler stores things by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from duetime.delivery.answers import Answer
from duetime.delivery.port import Callback, CallbackResult
from duetime.domain.outcomes import Outcome
from duetime.domain.timers import Failure, Timer


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """Exactly one is set. ``callback`` is to be sent, with a key of the engine's. ``wait_until``: the turn of the
    timer has not come, and it is due again then; that is no attempt. ``failure``: it has come to nothing."""

    callback: Callback | None = None
    wait_until: datetime | None = None
    failure: Failure | None = None


class TimerGate(Protocol):
    """``takes`` and ``read_answer`` are called in the event loop's thread and must be quick; the others in threads,
    from several at once, with batches. After they have raised they are called again: with the same batch while the
    store cannot be used, else with parts of it, until what caused the error is alone and is left out."""

    def takes(self, namespace: str) -> bool:
        """Whether the timers of ``namespace`` pass this gate."""
        ...

    def admit(self, timers: Sequence[Timer], *, now: datetime) -> list[Admission]:
        """One admission per timer; each is due, and there is room for it now."""
        ...

    def read_answer(self, result: CallbackResult, *, now: datetime) -> Answer:
        """What the receiver's answer means for a timer that was let pass."""
        ...

    def recorded(self, outcomes: Sequence[Outcome], *, now: datetime) -> None:
        """These were recorded: timers that have fired or failed, and timers that were put off (SCHEDULED, no attempt
        more than before). Not called for some of them when a process dies."""
        ...
