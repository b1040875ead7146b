"""The relay on a real outbox: many writers, relays that race and die, publishers that fail."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from duetime.calls.relay import OutboxRelay, RelaySettings
from duetime.domain.call_events import CallEvent
from duetime.domain.service_calls import calls_namespace
from duetime.runtime.clock import SystemClock
from duetime.runtime.ids import new_id
from duetime.stores.core.calls import CallStore
from duetime.stores.core.store import Store
from duetime.stores.open import open_store
from duetime.stores.port.calls import ApplyStatus, CallRef
from duetime.testing.contract.call_builders import begun, cancelled, concluded, submitted
from tests.support.outbox import first_occurrences

LEASE_SECONDS = 0.6
EVENTS_OF_A_LIFE = 7


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/outbox.db"


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with closing(open_store(url)) as opened:
        opened.initialise()
        for tenant_id in ("acme", "globex"):
            opened.catalogue.create_namespace(
                calls_namespace(tenant_id),
                num_shards=4,
                dedicated=False,
                now=SystemClock().now(),
                tenant_id=tenant_id,
            )
        yield opened


def live(calls: CallStore, tenant_id: str) -> None:
    """A whole life of a call: seven events in three transactions."""
    now = SystemClock().now()

    def apply(transition: Any) -> None:
        assert calls.apply([transition], now=now) == [ApplyStatus.APPLIED]

    first = submitted(tenant_id=tenant_id, call_id=new_id(), now=now)
    apply(first)
    second = begun(first.after, now=now)
    apply(second)
    apply(concluded(second.after, second.executions[0], now=now))


class FlakyPublisher:
    """Refuses one event in ``refuse_one_in``; keeps what it took, for all relays together."""

    name = "flaky"

    def __init__(self, taken: dict[tuple[str, str], list[int]], refuse_one_in: int, seed: int) -> None:
        self._taken = taken
        self._refuse_one_in = refuse_one_in
        self._random = random.Random(seed)

    def publish(self, events: Sequence[CallEvent]) -> Mapping[str, str]:
        refused = {}
        for event in events:
            if self._random.randrange(self._refuse_one_in) == 0:
                refused[event.event_id] = "chance"
            else:
                self._taken.setdefault((event.tenant_id, event.aggregate_id), []).append(event.sequence)
        return refused

    def close(self) -> None: ...


def relay(store: Store, publisher: Any, *, owner_id: str, seed: int = 1) -> OutboxRelay:
    return OutboxRelay(
        store.leases,
        store.outbox,
        [publisher],
        calls=store.calls,
        clock=SystemClock(),
        settings=RelaySettings(lease_seconds=LEASE_SECONDS, poll_interval_seconds=0.02, batch=20),
        owner_id=owner_id,
        random=random.Random(seed).random,
        new_id=new_id,
    )


def test_order_per_call_holds_with_many_writers_and_relays_that_race_for_the_lease(store: Store) -> None:
    taken: dict[tuple[str, str], list[int]] = {}
    relays = [relay(store, FlakyPublisher(taken, 20, seed), owner_id=f"d{seed}", seed=seed) for seed in range(3)]
    store.calls.on_events += [each.notify for each in relays]
    running = [threading.Thread(target=each.run) for each in relays]

    def write(tenant_id: str) -> None:
        for _ in range(15):
            live(store.calls, tenant_id)

    writers = [threading.Thread(target=write, args=(tenant,)) for tenant in ("acme", "globex", "acme", "globex")]
    for thread in (*running, *writers):
        thread.start()
    for writer in writers:
        writer.join()

    def stop_the_active_one() -> bool:
        active = [each for each in relays if each.stats.is_active]
        for each in active[:1]:
            each.stop()
        return bool(active)

    wait_until(stop_the_active_one)  # in the middle: another one goes on
    wait_until(lambda: not store.outbox.unpublished(limit=1))
    for each in relays:
        each.stop()
    for thread in running:
        thread.join(10)
        assert not thread.is_alive()
    assert len(taken) == 60
    for sequences in taken.values():
        assert first_occurrences(sequences) == list(range(1, EVENTS_OF_A_LIFE + 1))
    assert sum(each.stats.failures for each in relays) > 0


def wait_until(is_so: Any, seconds: float = 30.0) -> None:
    """Poll: what is waited for is the work of other threads or processes, which tell nobody."""
    done = threading.Event()
    for _ in range(int(seconds / 0.02)):
        if is_so():
            return
        done.wait(0.02)
    raise AssertionError(f"not within {seconds} s")


_DIES = """
import os, signal, sys
from duetime.calls.relay import OutboxRelay, RelaySettings
from duetime.runtime.clock import SystemClock
from duetime.stores.open import open_store

class ToFile:
    name = "file"
    def publish(self, events):
        with open(sys.argv[2], "a") as file:
            for event in events:
                file.write(event.to_json() + "\\n")
        return {}

class Dies:
    "The outbox, but the process is killed when it comes to marking for the first time."
    def __init__(self, outbox): self.unpublished = outbox.unpublished
    def mark_published(self, events, *, now): os.kill(os.getpid(), signal.SIGKILL)

store = open_store(sys.argv[1])
OutboxRelay(store.leases, Dies(store.outbox), [ToFile()], calls=store.calls, clock=SystemClock(),
           settings=RelaySettings(lease_seconds=0.6), owner_id=str(os.getpid()), random=lambda: 0.5,
           new_id=lambda: "").run()
"""


def test_kill_9_between_publishing_and_marking_repeats_and_loses_nothing(
    store: Store, url: str, tmp_path: Path
) -> None:
    published = tmp_path / "published"
    calls: CallStore = store.calls
    for _ in range(3):
        live(calls, "acme")
    for _ in range(2):  # each waits for the lease of the one before to end
        code = subprocess.run([sys.executable, "-c", _DIES, url, str(published)], timeout=60, check=False).returncode
        assert code == -signal.SIGKILL
    live(calls, "globex")

    class ToFile:
        name = "file"

        def publish(self, events: Sequence[CallEvent]) -> Mapping[str, str]:
            with published.open("a") as file:
                file.writelines(event.to_json() + "\n" for event in events)
            return {}

        def close(self) -> None: ...

    survivor = relay(store, ToFile(), owner_id="survivor")
    thread = threading.Thread(target=survivor.run)
    thread.start()
    wait_until(lambda: not store.outbox.unpublished(limit=1))
    survivor.stop()
    thread.join(10)
    documents = [json.loads(line) for line in published.read_text().splitlines()]
    by_call: dict[str, list[int]] = {}
    for document in documents:
        by_call.setdefault(document["aggregateId"], []).append(document["sequence"])
    assert len(by_call) == 4
    assert all(first_occurrences(numbers) == list(range(1, EVENTS_OF_A_LIFE + 1)) for numbers in by_call.values())
    assert len(documents) == 3 * 3 * EVENTS_OF_A_LIFE + EVENTS_OF_A_LIFE  # twice killed, then marked
    ids = {document["id"] for document in documents}
    assert len(ids) == 4 * EVENTS_OF_A_LIFE  # what comes again has the id that it had


def test_pruning_takes_published_events_after_the_retention_and_no_others(store: Store) -> None:
    calls: CallStore = store.calls
    live(calls, "acme")
    (first, *others) = store.outbox.unpublished(limit=100)
    store.outbox.mark_published([first], now=SystemClock().now())
    eager = OutboxRelay(
        store.leases,
        store.outbox,
        [FlakyPublisher({}, 1, 1)],  # takes nothing
        calls=calls,
        clock=SystemClock(),
        settings=RelaySettings(retention_seconds=-60, prune_interval_seconds=0),
        owner_id="a",
        random=lambda: 0.5,
        new_id=new_id,
    )
    eager.run_once()
    assert eager.stats.pruned == 1
    assert store.outbox.unpublished(limit=100) == others
    left = calls.list_events("acme", first.event.aggregate_id, after=0, limit=100)
    assert [event.sequence for event in left] == list(range(2, EVENTS_OF_A_LIFE + 1))


def test_an_expired_call_is_removed_and_the_event_of_it_is_published(store: Store) -> None:
    calls: CallStore = store.calls
    long_ago = SystemClock().now() - timedelta(days=400)
    first = submitted(tenant_id="acme", now=long_ago, num_shards=4)
    call = first.after
    for transition in (first, cancelled(call, now=long_ago)):
        assert calls.apply([transition], now=long_ago) == [ApplyStatus.APPLIED]
    taken: dict[tuple[str, str], list[int]] = {}
    publisher = FlakyPublisher(taken, 10**9, 1)
    subject = OutboxRelay(
        store.leases,
        store.outbox,
        [publisher],
        calls=calls,
        clock=SystemClock(),
        settings=RelaySettings(prune_interval_seconds=0),
        owner_id="a",
        random=lambda: 0.5,
        new_id=new_id,
    )
    subject.run_once()
    subject.run_once()
    assert calls.get([CallRef("acme", call.call_id)], now=long_ago) == [None]
    assert taken == {("acme", call.call_id): [1, 2, 3, 4]}
