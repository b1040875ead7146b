"""Requests and capacity units of a timer's life on DynamoDB, counted from the emulator's answers.

    python -m benchmarks.dynamodb_capacity [--timers 2000] [--shards 4]

Units come from single writes and requests from PartiQL batches, since ministack charges a PartiQL statement a flat
unit where the service charges it like the single write (tests/support/capacity.py).
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

from benchmarks.figures import parser, show
from duetime.domain.namespaces import Namespace
from duetime.domain.outcomes import Outcome
from duetime.domain.timers import Timer
from duetime.engine.poller import Poller
from duetime.engine.settings import EngineSettings
from duetime.runtime.clock import SystemClock
from duetime.stores.core.store import Store
from duetime.stores.core.timer_codec import encode
from duetime.stores.entities import TIMER
from duetime.stores.port.timers import PutMode
from duetime.stores.store_clock import StoreClock
from duetime.testing.contract.builders import failed, fired, leased, make_timers, parked, rescheduled, retried
from tests.support.attempts import logged
from tests.support.capacity import CapacityMeter, counted_client
from tests.support.dynamodb import dynamodb_store, item_of, unique_table_name
from tests.support.dynamodb_units import item_size
from tests.support.ministack import running_ministack
from tests.support.scripted_sender import Script, ScriptedSender

FIELDS: dict[str, Any] = {
    "callback_url": "https://api.example.com/v1/orders/reminders",
    "payload_json": '{"orderId": "0191e5a2-6c3f-7c5e-9d1b-2f6c1f0a7b11", "kind": "reminder"}',
    "headers_json": '{"X-Source": "orders"}',
    "retry_policy_json": '{"maxAttempts": 5, "initialInterval": "10s"}',
}
"""A usual timer: below 1 KB with its index entry."""


def new_store(client: Any, *, shards: int, now: datetime, batch_statements: bool) -> tuple[Store, Namespace]:
    store = dynamodb_store(client, unique_table_name(), batch_statements=batch_statements)
    store.initialise()
    return store, store.catalogue.create_namespace("bench", num_shards=shards, dedicated=False, now=now)[0]


def print_write_units(client: Any, now: datetime) -> None:
    """Write units of each step, per timer, by single writes. Attempts are logged as the engine logs them."""
    later = now + timedelta(seconds=60)
    steps: dict[str, Callable[[Timer], Outcome]] = {
        "fire and record": lambda timer: logged(fired(timer, at=now)),
        "fail for good": lambda timer: logged(failed(timer, at=now), status=400),
        "retry": lambda timer: logged(retried(timer, next_attempt_at=later, at=now), status=503),
        "park": lambda timer: parked(timer, until=later),
        "reschedule": lambda timer: logged(rescheduled(timer, execute_at=later, at=now)),
    }
    number = 20
    for correlation_id in (None, "correlation-1"):
        store, namespace = new_store(client, shards=1, now=now, batch_statements=False)
        meter = CapacityMeter(client)
        for step, outcome in steps.items():
            prefix = step[:6]
            timers = make_timers(
                namespace, number, prefix=prefix, execute_at=now, correlation_id=correlation_id, **FIELDS
            )
            meter.reset()
            store.timers.put(timers, mode=PutMode.CREATE, now=now)
            created = meter.write_units / number
            meter.reset()
            store.timers.record(leased([outcome(timer) for timer in timers]), now=now)
            show(
                f"write units per timer with{'' if correlation_id else 'out'} a correlation id, {step}",
                create=created,
                then=meter.write_units / number,
            )
        meter.stop()


def print_repeated(client: Any, now: datetime) -> None:
    """Print what the growing attempt log does to a timer that is rescheduled, or retried, again and again."""
    repeated: dict[str, Callable[[Timer, datetime], Outcome]] = {
        "reschedule": lambda timer, later: logged(rescheduled(timer, execute_at=later, at=now)),
        "retry": lambda timer, later: logged(retried(timer, next_attempt_at=later, at=now), status=503),
    }
    for step, outcome in repeated.items():
        store, namespace = new_store(client, shards=1, now=now, batch_statements=False)
        store.timers.put(make_timers(namespace, 1, execute_at=now, **FIELDS), mode=PutMode.CREATE, now=now)
        meter = CapacityMeter(client)
        units = []
        for minutes in range(1, 13):
            later = now + timedelta(minutes=minutes)
            (timer,) = store.timers.due(0, until=later, limit=1).timers
            meter.reset()
            # A firing id as long as a real one: those of the builders grow with each reschedule.
            store.timers.record(leased([replace(outcome(timer, later), firing_id=str(uuid4()))]), now=now)
            units.append(round(meter.write_units))
        meter.stop()
        show(f"write units of a {step}", **{f"n{place}": unit for place, unit in enumerate(units, 1)})


async def poll(store: Store, clock: SystemClock, *, fired: int, seconds: float) -> float:
    """Run a real poller until ``fired`` callbacks are recorded or ``seconds`` have passed; how long it ran."""
    stop = asyncio.Event()
    poller = Poller(
        store,
        ScriptedSender(script=lambda _: Script(delay_seconds=0)),
        clock=StoreClock(store, clock),
        settings=EngineSettings(),
        worker_id="bench",
        new_id=lambda: uuid4().hex,
        random=random.random,
    )
    started = time.perf_counter()
    task = asyncio.create_task(poller.run(stop))
    while poller.stats()["fired"] < fired and time.perf_counter() - started < seconds and not task.done():
        await asyncio.sleep(0.01)
    elapsed = time.perf_counter() - started
    stop.set()
    await task
    poller.close()
    return elapsed


def print_requests(client: Any, clock: SystemClock, *, number: int, shards: int) -> None:
    """Print the requests of creating and of firing ``number`` timers that are due at one instant, claims and polls
    included.
    """
    now = clock.now()
    store, namespace = new_store(client, shards=shards, now=now, batch_statements=True)
    meter = CapacityMeter(client)
    timers = make_timers(namespace, number, execute_at=now, now=now, **FIELDS)
    for start in range(0, number, 500):
        store.timers.put(timers[start : start + 500], mode=PutMode.CREATE, now=now)
    what = f"{number} timers on {shards} shards"
    show(f"{what}, create", requests_each=meter.total_requests / number, **meter.requests)
    meter.reset()
    cpu = time.process_time()
    seconds = asyncio.run(poll(store, clock, fired=number, seconds=60))
    cpu = time.process_time() - cpu
    size = item_size(item_of(TIMER, encode(timers[0])))
    show(
        f"{what}, fire",
        requests_each=meter.total_requests / number,
        **meter.requests,
        items_read_each=meter.items_read / number,
        item_bytes=size,
        read_units_each=meter.items_read / number * size / 4096,
        per_s=number / seconds,
        poller_cpu_us_each=cpu / number * 1e6,
    )
    meter.stop()


def print_idle(client: Any, clock: SystemClock, *, shards: int, seconds: float) -> None:
    """Print what a poller with nothing to do asks for, its claims and its release included."""
    store, _ = new_store(client, shards=shards, now=clock.now(), batch_statements=True)
    meter = CapacityMeter(client)
    cpu = time.process_time()
    elapsed = asyncio.run(poll(store, clock, fired=1, seconds=seconds))
    cpu = time.process_time() - cpu
    show(
        f"idle, {shards} shards",
        seconds=elapsed,
        requests_per_s=meter.total_requests / elapsed,
        cpu_percent_of_core=cpu / elapsed * 100,
        items_read=meter.items_read,
        **meter.requests,
    )
    meter.stop()


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--timers", type=int, default=2000)
    options.add_argument("--shards", type=int, default=4)
    given = options.parse_args()
    clock = SystemClock()
    with running_ministack() as endpoint_url, counted_client(endpoint_url) as client:
        print_write_units(client, clock.now())
        print_repeated(client, clock.now())
        print_idle(client, clock, shards=16, seconds=10)
        print_requests(client, clock, number=given.timers, shards=given.shards)


if __name__ == "__main__":
    main()
