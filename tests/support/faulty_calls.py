"""A call store that fails as a test says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from duetime.domain.call_steps import Transition
from duetime.stores.core.calls import CallStore
from duetime.stores.port.calls import ApplyStatus

Hook = Callable[[Sequence[Transition]], None]


def _nothing(transitions: Sequence[Transition]) -> None: ...


class FaultyCalls(CallStore):
    """The call store that it is given, with something before and after ``apply``: either may raise. What it
    ``puts_off`` is not applied, and is UNAVAILABLE."""

    def __init__(
        self,
        calls: CallStore,
        *,
        before: Hook = _nothing,
        after: Hook = _nothing,
        puts_off: Callable[[Transition], bool] = lambda transition: False,
    ) -> None:
        super().__init__(calls._backend)
        self.on_events = calls.on_events
        self.puts_off = puts_off
        self.before = before
        self.after = after
        self.get_hook: Callable[[Sequence[Any]], None] = lambda refs: None

    def get(self, refs: Sequence[Any], *, now: datetime) -> Any:
        self.get_hook(refs)
        return super().get(refs, now=now)

    def apply(self, transitions: Sequence[Transition], *, now: datetime) -> list[ApplyStatus]:
        self.before(transitions)
        taken = [not self.puts_off(transition) for transition in transitions]
        chosen = [transition for transition, is_taken in zip(transitions, taken, strict=True) if is_taken]
        applied = iter(super().apply(chosen, now=now))
        self.after(transitions)
        return [next(applied) if is_taken else ApplyStatus.UNAVAILABLE for is_taken in taken]


def is_begin(transitions: Sequence[Transition]) -> bool:
    return any(each.after.execution_id is not None for each in transitions)


def is_end(transitions: Sequence[Transition]) -> bool:
    return any(each.before is not None and each.before.execution_id is not None for each in transitions)
