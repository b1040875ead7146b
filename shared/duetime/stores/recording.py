"""``TimerStore.record`` for every store: what a refused outcome becomes is decided here, by what is stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from duetime.domain.errors import StoreUnavailable
from duetime.domain.outcomes import LeasedOutcome, Outcome, RecordStatus, reconciled
from duetime.domain.timers import Timer
from duetime.stores.rounds import rounds

Write = Callable[[Sequence[LeasedOutcome]], Sequence[RecordStatus]]
"""Writes each outcome if exactly the revision and firing of its timer are stored: else it is SUPERSEDED."""
Read = Callable[[Sequence[Timer]], Sequence[Timer | None]]
"""What is stored in the place of each timer, expired or not; what cannot be read as a failed timer."""

_IN_DOUBT = (RecordStatus.SUPERSEDED, RecordStatus.LEASE_LOST)


def record(outcomes: Sequence[LeasedOutcome], *, write: Write, read: Read) -> list[RecordStatus]:
    """One write where all goes well. What was refused is read, and written again where the attempt is still the
    timer's (``domain.outcomes.reconciled``)."""
    statuses: dict[int, RecordStatus] = {}
    waiting = dict(enumerate(outcomes))
    for _ in rounds():
        statuses |= zip(waiting, write(list(waiting.values())), strict=True)
        refused = [place for place in waiting if statuses[place] in _IN_DOUBT]
        stored = read([waiting[place].outcome.timer for place in refused]) if refused else []
        again: dict[int, LeasedOutcome] = {}
        for place, timer in zip(refused, stored, strict=True):
            becomes = reconciled(waiting[place].outcome, timer)
            if becomes is RecordStatus.APPLIED:
                statuses[place] = becomes
            elif isinstance(becomes, Outcome) and statuses[place] is RecordStatus.SUPERSEDED:
                again[place] = replace(waiting[place], outcome=becomes)
        if not again:
            return [statuses[place] for place in range(len(outcomes))]
        waiting = again
    raise StoreUnavailable("other writers changed the timers again and again")
