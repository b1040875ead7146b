"""Recording beside other writers, and without a server."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any, cast

import pytest

from duetime.domain.outcomes import LeasedOutcome, RecordStatus
from duetime.domain.timers import TimerChange, TimerState
from duetime.stores.backend import Backend, Batch, Write
from duetime.stores.backends.sql.dialects.dialect import open_dialect
from duetime.stores.core.recording import Recording
from duetime.testing.contract.builders import NOW, fired, make_timer
from duetime.testing.contract.steps import claim, create, stored
from tests.support.sql_store import SqlStore

LOST_AT_ONCE = 10
"""More than are tried without a wait."""


def test_an_outcome_is_recorded_while_labels_change_all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is stored is read after a wait, not before it."""
    store = SqlStore(open_dialect("sqlite://"))
    store.initialise()
    namespace, _ = store.catalogue.create_namespace("n", num_shards=1, dedicated=False, now=NOW)
    (timer,) = create(store, make_timer(namespace))
    numbers = count()

    def relabel(_: float = 0.0) -> None:
        change = TimerChange(tags=(str(next(numbers)),))
        store.timers.update(namespace, timer.timer_id, change, firing_id="", now=NOW)

    class Busy:
        """Its rows are changed right before the first writes."""

        writes = 0

        def __getattr__(self, name: str) -> Any:
            return getattr(store.backend, name)

        def write(self, writes: Sequence[Write], **named: Any) -> Batch:
            self.writes += 1
            if self.writes <= LOST_AT_ONCE:
                relabel()
            return store.backend.write(writes, **named)

    monkeypatch.setattr("duetime.stores.backend.time.sleep", relabel)
    outcome = LeasedOutcome(fired(timer), claim(store))

    assert Recording(cast("Backend", Busy())).record([outcome], now=NOW) == [RecordStatus.APPLIED]
    assert stored(store, namespace).state is TimerState.FIRED
    store.close()
