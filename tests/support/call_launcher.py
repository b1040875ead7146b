"""A process that executes service calls and kills itself at a given point:

    python -m tests.support.call_launcher submit <store URL>
    python -m tests.support.call_launcher poll <store URL> <point>

``submit`` stores one call, whose fields are the JSON in ``CALL``, and dies; ``poll`` runs a poller until it does. The
points lie between two steps: the product's own code knows nothing of them.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial

from duetime.domain.call_steps import Transition
from duetime.runtime import wiring
from duetime.runtime.clock import SystemClock
from duetime.runtime.logs import LogFormat, LogLevel, configure_logging
from duetime.runtime.settings import WorkerSettings, load_settings
from duetime.stores.core.calls import CallStore
from duetime.testing.contract import call_builders as make
from tests.support.faulty_calls import FaultyCalls, is_begin, is_end
from tests.support.parts import overlaid

CALL_ID = "01988888-0000-7000-8000-000000000001"


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def dying_when(is_time: Callable[[Sequence[Transition]], bool]) -> Callable[[Sequence[Transition]], None]:
    def hook(transitions: Sequence[Transition]) -> None:
        if is_time(transitions):
            die()

    return hook


def submit(store_url: str) -> None:
    with wiring.opened_store(store_url) as store:
        now = SystemClock().now()
        calls = store.calls
        assert calls is not None
        given = json.loads(os.environ["CALL"])
        calls.apply([make.submitted(call_id=CALL_ID, now=now, **given)], now=now)
        die()


def poll(store_url: str, point: str) -> None:
    points: dict[str, Callable[[CallStore], CallStore]] = {
        "before begin": partial(FaultyCalls, before=dying_when(is_begin)),
        "after begin": partial(FaultyCalls, after=dying_when(is_begin)),
        "before end": partial(FaultyCalls, before=dying_when(is_end)),
        "after end": partial(FaultyCalls, after=dying_when(is_end)),
        "never": FaultyCalls,
    }
    settings = load_settings(WorkerSettings, {"store": store_url})
    with wiring.opened_store(store_url) as store:
        clock = wiring.store_clock(store)
        faulty = overlaid(store, calls=points[point](store.calls))
        with wiring.opened_poller(faulty, settings, clock, secret_box=None) as poller:
            asyncio.run(poller.run(asyncio.Event()))


if __name__ == "__main__":
    configure_logging(LogFormat.JSON, LogLevel.INFO, sys.stderr)
    command, url, *rest = sys.argv[1:]
    if command == "submit":
        submit(url)
    else:
        poll(url, *rest)
