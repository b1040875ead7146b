"""What all parts of a poller share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from duetime.engine.settings import EngineSettings
from duetime.engine.stats import EngineStats
from duetime.engine.waiting import Threads, WakeupEvent
from duetime.stores.store_clock import StoreClock


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineContext:
    """``random`` gives floats in [0, 1). ``wake`` wakes the reading of due timers, and a drain."""

    clock: StoreClock
    settings: EngineSettings
    stats: EngineStats
    random: Callable[[], float]
    new_id: Callable[[], str]
    wake: WakeupEvent
    threads: Threads
