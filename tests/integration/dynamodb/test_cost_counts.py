"""What `duetime cost` computes with is what the code asks for."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from duetime.api.handler import build_handler
from duetime.cli.cost import counts
from duetime.domain.namespaces import Namespace
from duetime.engine.poller import Poller
from duetime.engine.settings import EngineSettings
from duetime.runtime.emf import EmfReporter
from duetime.runtime.outbox_function import OutboxFunction
from duetime.runtime.poller_function import METRICS_INTERVAL_SECONDS, PollerFunction
from duetime.runtime.settings import PollerSettings
from duetime.runtime.waking import Waker
from duetime.stores.backends.dynamodb.items import Item
from duetime.stores.core.store import Store
from duetime.testing.contract.builders import fired, make_timer, make_timers, seconds
from duetime.testing.contract.steps import create, record
from duetime.testing.virtual_time import InlineOffload, VirtualClock, run_virtually
from tests.integration.dynamodb.test_capacity import FIELDS
from tests.support.api import context_for
from tests.support.attempts import logged
from tests.support.capacity import CapacityMeter
from tests.support.clock import NOW, FakeClock
from tests.support.dynamodb_units import item_size
from tests.support.engine import make_poller
from tests.support.http import Api
from tests.support.on_lambda import NoBackground
from tests.support.scripted_sender import Script, ScriptedSender

SECONDS = 20.0
"""Of polling. A renewal more or less shows."""


@pytest.mark.parametrize("payload_bytes", [2, 200, 300, 500, 5_000, 33_000, 100_000])
def test_write_units_of_a_timers_life(
    singly: Store, single: Namespace, meter: CapacityMeter, payload_bytes: int
) -> None:
    payload = '"' + "x" * (payload_bytes - 2) + '"'
    (timer,) = create(singly, make_timer(single, **{**FIELDS, "payload_json": payload}))
    created = meter.write_units

    record(singly, [logged(fired(timer))])

    assert (created, meter.write_units - created) == counts.write_units(payload_bytes)


def test_sizes_of_items(singly: Store, single: Namespace, items: Callable[[int, str], list[Item]]) -> None:
    (timer,) = create(singly, make_timer(single, **FIELDS))
    (pending,) = items(0, "TIMER#")
    record(singly, [logged(fired(timer))])
    (finished,) = items(0, "TIMER#")

    assert item_size(pending) - len(FIELDS["payload_json"]) == pytest.approx(counts.TIMER_BYTES, abs=30)
    assert item_size(finished) - item_size(pending) == pytest.approx(counts.FIRED_BYTES, abs=30)


def test_reads_of_a_request_that_creates(singly: Store, single: Namespace, meter: CapacityMeter) -> None:
    api = Api(build_handler(context_for(singly, FakeClock())))
    body = {"delay": "1h", "callbackUrl": FIELDS["callback_url"], "payload": json.loads(FIELDS["payload_json"])}

    for _ in range(5):
        assert api.call("POST", "/v1/namespaces/single/timers", body).status == 201

    assert meter.least_read_units <= 5 * counts.API_READ_UNITS
    assert meter.write_units == 5 * counts.write_units(len(FIELDS["payload_json"]))[0]


def poll(
    clock: VirtualClock,
    meter: CapacityMeter,
    pollers: Sequence[Poller],
    *,
    is_fixed: bool = True,
    observe: Callable[[], None] = lambda: None,
) -> tuple[float, float]:
    """Read and write units per second of shard 0, when all ``pollers`` have begun."""

    async def main() -> tuple[float, float]:
        stop = asyncio.Event()
        shard_ids = [0] if is_fixed else None
        polling = []
        for poller in pollers:
            polling.append(asyncio.create_task(poller.run(stop, shard_ids=shard_ids)))
            await asyncio.sleep(2)
        observe()
        meter.reset()
        await asyncio.sleep(SECONDS)
        observe()
        units = meter.least_read_units / SECONDS, meter.write_units / SECONDS
        stop.set()
        await asyncio.gather(*polling)
        return units

    return run_virtually(clock, main())


def test_an_idle_poller(singly: Store, single: Namespace, meter: CapacityMeter) -> None:
    clock = VirtualClock(NOW)
    reads, writes = poll(clock, meter, [make_poller(singly, ScriptedSender(), clock)])

    assert reads == pytest.approx(counts.WORKER.reads_per_shard, rel=0.05)
    assert writes == pytest.approx(counts.WORKER.writes_per_shard, rel=0.15)


def test_an_idle_worker_that_shares(singly: Store, single: Namespace, meter: CapacityMeter) -> None:
    clock = VirtualClock(NOW)
    reads, writes = poll(clock, meter, [make_poller(singly, ScriptedSender(), clock)], is_fixed=False)

    assert reads == pytest.approx(counts.WORKER.reads_per_shard + counts.WORKER.reads, rel=0.05)
    assert writes == pytest.approx(counts.WORKER.writes_per_shard + counts.WORKER.writes, rel=0.15)


def test_a_poller_that_waits(singly: Store, single: Namespace, meter: CapacityMeter) -> None:
    clock = VirtualClock(NOW)
    owner, waiting = (make_poller(singly, ScriptedSender(), clock, worker_id=each) for each in "ab")
    reads, _ = poll(clock, meter, [owner, waiting])

    assert reads == pytest.approx(counts.WORKER.reads_per_shard + counts.WAITING_READS_PER_SHARD, rel=0.05)


def test_a_lambda_poller_renews_its_leases_seldom(singly: Store, single: Namespace, meter: CapacityMeter) -> None:
    clock = VirtualClock(NOW)
    lease_seconds = PollerSettings(store="dynamodb://timers").lease_seconds
    settings = EngineSettings(lease_seconds=lease_seconds)
    _, writes = poll(clock, meter, [make_poller(singly, ScriptedSender(), clock, settings=settings)])

    assert writes == pytest.approx(counts.ON_LAMBDA.writes_per_shard, rel=0.15)


@pytest.mark.parametrize(
    ("is_asleep", "requests"),
    [(False, {"GetItem": 1, "BatchGetItem": 2}), (True, {"GetItem": 1, "BatchGetItem": 1, "Query": 4})],
)
def test_a_tick_that_finds_nothing_to_do_reads_a_unit_a_shard(
    singly: Store, orders: Namespace, meter: CapacityMeter, is_asleep: bool, requests: dict[str, int]
) -> None:
    clock = VirtualClock(NOW)
    if not is_asleep:
        singly.leases.claim(range(4), "poller", lease_seconds=10, metadata="{}", now=NOW)
        assert singly.leases.advance_sleep_epoch(0)
    create(singly, *make_timers(orders, 8, execute_at=NOW + seconds(3600), **FIELDS))
    nothing: Any = Mock(side_effect=AssertionError)  # it invokes nobody
    lines: list[str] = []
    tick = PollerFunction(
        make_poller(singly, ScriptedSender(), clock),
        singly,
        clock=clock,
        settings=PollerSettings(store="dynamodb://timers"),
        invoke=nothing,
        reporter=EmfReporter(lines.append, clock=clock, stage="dev", function="duetime-poller"),
        owner_id="tick",
        offload=InlineOffload(),
        background=NoBackground(),
        background_offload=InlineOffload(),
    )
    context: Any = SimpleNamespace(
        aws_request_id="request", invoked_function_arn="arn", get_remaining_time_in_millis=lambda: 900_000
    )
    meter.reset()

    assert tick({"detail-type": "Scheduled Event"}, context)["shardRanges"] == []

    assert dict(meter.requests) == requests
    assert meter.least_read_units == counts.TICK_READS + 4 * counts.TICK_READS_PER_SHARD
    assert meter.write_units == 0
    # While pollers sleep nobody else tells that somebody watches.
    assert [len(metrics_of(line)) for line in lines] == ([counts.METRICS_OF_IDLE_POLLERS] if is_asleep else [])


@pytest.mark.parametrize(("is_asleep", "invoked"), [(False, 0), (True, 1)])
def test_a_request_that_creates_reads_once_in_a_while_whether_the_pollers_sleep(
    singly: Store, single: Namespace, meter: CapacityMeter, is_asleep: bool, invoked: int
) -> None:
    clock = FakeClock()
    invocations: list[object] = []
    waker = Waker(singly.leases, clock=clock, invoke=lambda *what: invocations.append(what), function="poller")
    api = Api(build_handler(replace(context_for(singly, clock), on_stored=waker)))
    if not is_asleep:
        assert singly.leases.advance_sleep_epoch(0)

    def requests(delay: str) -> dict[str, int]:
        meter.reset()
        body = {"delay": delay, "callbackUrl": FIELDS["callback_url"]}
        assert api.call("POST", "/v1/namespaces/single/timers", body).status == 201
        return dict(meter.requests)

    later, first, second = (requests(delay) for delay in ("1h", "0s", "1s"))

    # The first one has read the namespace; those that are due later need not look.
    assert first == {"GetItem": 1, **second}
    assert second == {name: number for name, number in later.items() if name != "GetItem"}
    assert invocations == [("poller", {"wake": True})] * invoked
    clock.advance(counts.TRUST_SECONDS - 0.1)  # by now the namespace is read again
    assert requests("2s") == {**second, "GetItem": 1 + invoked}
    assert len(invocations) == 2 * invoked
    clock.advance(0.2)
    assert requests("3s") == (second if is_asleep else first)


def test_a_sweep_of_the_outbox_that_finds_nothing(singly: Store, meter: CapacityMeter) -> None:
    sweep = OutboxFunction(
        singly.outbox,
        [],
        calls=singly.calls,
        clock=FakeClock(),
        report=lambda _: None,
        sweep_after_seconds=120,
        new_id=str,
    )
    context: Any = SimpleNamespace(aws_request_id="request", get_remaining_time_in_millis=lambda: 60_000)
    meter.reset()

    sweep({"detail-type": "Scheduled Event"}, context)

    assert meter.least_read_units == counts.OUTBOX_READS
    assert meter.write_units == 0


def test_a_timer_that_is_due_alone_and_the_metrics_of_firing(
    singly: Store, single: Namespace, meter: CapacityMeter
) -> None:
    clock = VirtualClock(NOW)
    due = (3.3, 7.9, 12.5, 17.1, 21.97)  # the last one is in flight at the end
    for at in due:
        create(singly, *make_timers(single, 1, prefix=f"t{at}-", execute_at=NOW + seconds(at), **FIELDS))
    sender = ScriptedSender(lambda _: Script(delay_seconds=0.05))
    poller = make_poller(singly, sender, clock)
    lines: list[str] = []
    reporter = EmfReporter(lines.append, clock=clock, stage="dev", function="duetime-poller")

    def observe() -> None:
        reporter.report(poller.snapshot(), request_id="0193e5a1-7c00-7abc-8def-0123456789ab")

    reads, _ = poll(clock, meter, [poller], observe=observe)

    assert len(sender.received) == len(due)
    extra = (reads - counts.WORKER.reads_per_shard) * SECONDS / len(due)
    assert extra == pytest.approx(counts.LONE_READS, abs=0.6)
    idle, firing = ({each["Name"] for each in metrics_of(line)} for line in lines)
    assert len(idle) == counts.METRICS_OF_IDLE_POLLERS
    assert len(firing - idle) == counts.METRICS_OF_FIRING
    assert len(lines[0]) / METRICS_INTERVAL_SECONDS == pytest.approx(counts.LOG_BYTES_PER_POLLER_SECOND, rel=0.3)


def metrics_of(line: str) -> list[dict[str, Any]]:
    (directive,) = json.loads(line)["_aws"]["CloudWatchMetrics"]
    metrics: list[dict[str, Any]] = directive["Metrics"]
    return metrics
