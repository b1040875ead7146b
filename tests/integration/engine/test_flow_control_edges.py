"""What a namespace must not do to another, or to itself, when its limits or its secrets change while timers wait."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from random import Random

import pytest

from duetime.delivery.encryption import SecretUnavailable
from duetime.delivery.port import Callback
from duetime.domain.namespaces import EncryptedSecret, Namespace, NamespaceSettings
from duetime.engine import namespace_cache
from duetime.engine.delivery import Attempt
from duetime.engine.flow.control import FlowControl
from duetime.engine.flow.queues import HostSignal
from duetime.engine.keys import queue_key
from duetime.engine.namespace_cache import NamespaceCache
from duetime.engine.poller import Poller
from duetime.engine.settings import EngineSettings
from duetime.stores.port.store import Store
from duetime.stores.port.timers import TimerRef
from duetime.stores.store_clock import StoreClock
from duetime.testing.virtual_time import InlineOffload, VirtualClock, run_virtually
from tests.support.clock import NOW as START
from tests.support.engine import make_attempt, make_poller, make_shard, make_timer, put
from tests.support.scripted_sender import Script, ScriptedSender
from tests.support.stores import memory_store


def make_flow(settings: EngineSettings) -> FlowControl:
    return FlowControl(settings, random=lambda: 0.5, give_up=lambda attempt: None)


def add(flow: FlowControl, namespace: str, timer_id: str, host: str) -> None:
    timer = make_timer(timer_id, namespace=namespace, callback_url=f"http://{host}.test/")
    assert flow.accepts(queue_key(timer), 0.0)
    flow.add(make_attempt(timer, make_shard()), 0.0)


def take(flow: FlowControl, monotonic: float) -> dict[str, Attempt]:
    """All that may be started, by the id of its timer."""
    return {attempt.timer.timer_id: attempt for attempt in flow.take(monotonic, 100, lambda attempt: True)}


def test_a_queue_whose_namespace_is_full_does_not_keep_its_host_s_room() -> None:
    flow = make_flow(EngineSettings(max_in_flight_per_host=1))
    flow.configure("narrow", max_in_flight=1, rate_per_second=None, monotonic=0.0)
    add(flow, "noisy", "n", "shared")
    noisy = take(flow, 0.0)["n"]
    add(flow, "narrow", "a", "shared")
    add(flow, "narrow", "x", "other")
    assert list(take(flow, 0.0)) == ["x"]  # all that "narrow" may have in flight, while the host of "a" is full
    add(flow, "quiet", "q", "shared")
    assert not take(flow, 0.0)

    flow.end(noisy, HostSignal.ANSWERED, 0.1)

    assert list(take(flow, 0.1)) == ["q"]


def test_what_was_passed_over_comes_before_what_has_had_a_turn_since() -> None:
    flow = make_flow(EngineSettings(max_in_flight_per_host=1))
    add(flow, "noisy", "n1", "shared")
    noisy = take(flow, 0.0)["n1"]
    add(flow, "quiet", "q", "shared")
    add(flow, "noisy", "n2", "shared")
    assert not take(flow, 0.0)
    flow.end(noisy, HostSignal.ANSWERED, 0.1)
    assert list(take(flow, 0.1)) == ["q"]


def test_a_timer_that_may_not_start_takes_no_place_and_no_token() -> None:
    flow = make_flow(EngineSettings(max_in_flight_per_host=1))
    flow.configure("n", max_in_flight=None, rate_per_second=0.01, monotonic=0.0)
    add(flow, "n", "1", "h")
    assert not flow.take(0.0, 100, lambda attempt: False)
    assert not len(flow)
    add(flow, "n", "2", "h")
    assert list(take(flow, 0.0)) == ["2"]


def test_a_new_rate_is_in_force_for_who_waits_for_a_token_already() -> None:
    flow = make_flow(EngineSettings())
    flow.configure("n", max_in_flight=None, rate_per_second=0.01, monotonic=0.0)
    add(flow, "n", "1", "h")
    assert take(flow, 0.0)
    add(flow, "n", "2", "h")
    assert not take(flow, 0.0)
    flow.configure("n", max_in_flight=None, rate_per_second=100.0, monotonic=0.1)
    assert not take(flow, 0.1)
    assert flow.next_token_at is not None
    assert flow.next_token_at < 0.12


def test_more_namespaces_than_are_remembered_are_known_while_their_page_is_offered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with memory_store() as store:
        names = [f"n{number}" for number in range(4)]
        for name in names:
            store.catalogue.create_namespace(name, num_shards=1, dedicated=False, now=START)
        known = NamespaceCache(store.catalogue, clock=VirtualClock(START), secret_box=None)
        monkeypatch.setattr(namespace_cache, "_MAX_VIEWS", 3)
        known.load(names[:3])
        known.load(names[1:])
        assert [known.get(name) is not None for name in names] == [False, True, True, True]
        known.load(names)
        assert all(known.get(name) is not None for name in names)


class Box:
    is_down = False

    def encrypt(self, plain: bytes, *, context: str) -> bytes:
        return plain

    def decrypt(self, ciphertext: bytes, *, context: str) -> bytes:
        if self.is_down:
            raise SecretUnavailable("no key service")
        return bytes(32)


class Signatures(ScriptedSender):
    def submit(self, callbacks: Sequence[Callback]) -> None:
        signed.extend(any(line.startswith("webhook-signature:") for line in each.headers) for each in callbacks)
        super().submit(callbacks)


signed: list[bool] = []


def rotate(store: Store, secret: str) -> None:
    known = store.catalogue.get_namespace("n")
    assert known is not None
    changed = Namespace(
        "n", known.num_shards, known.first_shard, known.dedicated, known.created_at,
        NamespaceSettings(max_in_flight=4), secrets=(EncryptedSecret(secret, b"ciphertext", START, None),),
    )  # fmt: skip
    assert store.catalogue.update_namespace(changed, if_revision=known.revision, now=START) is not None


def test_what_waits_while_its_namespace_s_secret_gets_lost_is_not_sent_unsigned() -> None:
    signed.clear()
    clock, box, ids = VirtualClock(START), Box(), itertools.count()
    with memory_store() as store:
        store.catalogue.create_namespace("n", num_shards=4, dedicated=False, now=START)
        rotate(store, "first")
        poller = Poller(
            store, Signatures(lambda _: Script(delay_seconds=0.2)), clock=StoreClock(store, clock),
            settings=EngineSettings(), worker_id="w", new_id=lambda: f"id-{next(ids)}", random=Random(1).random,
            secret_box=box, make_offload=InlineOffload,
        )  # fmt: skip
        put(store, [make_timer(f"t{n}", namespace="n") for n in range(500)], START)

        async def main() -> None:
            stop = asyncio.Event()
            task = asyncio.create_task(poller.run(stop))
            await asyncio.sleep(5.0)
            box.is_down = True
            rotate(store, "second")
            await asyncio.sleep(20.0)
            assert len(signed) < 500
            box.is_down = False
            await asyncio.sleep(45.0)
            stop.set()
            await task

        run_virtually(clock, main())
    assert signed == [True] * 500


@pytest.mark.parametrize(
    ("settings", "fired", "polls_per_second"),
    [(NamespaceSettings(rate_limit_per_second=15.0), 300, 30), (NamespaceSettings(max_in_flight=2), 399, 15)],
)
def test_a_limited_backlog_is_not_read_once_for_every_turn(
    settings: NamespaceSettings, fired: int, polls_per_second: int
) -> None:
    clock = VirtualClock(START)
    with memory_store() as store:
        created, _ = store.catalogue.create_namespace("n", num_shards=4, dedicated=False, now=START)
        changed = Namespace(
            "n", 4, created.first_shard, dedicated=False, created_at=START, settings=settings,
        )  # fmt: skip
        assert store.catalogue.update_namespace(changed, if_revision=created.revision, now=START) is not None
        poller = make_poller(store, ScriptedSender(lambda _: Script(delay_seconds=0.1)), clock)
        put(store, [make_timer(f"t{n}", namespace="n") for n in range(3000)], START)

        async def main() -> None:
            stop = asyncio.Event()
            task = asyncio.create_task(poller.run(stop))
            await asyncio.sleep(20.0)
            stop.set()
            await task

        run_virtually(clock, main())
    assert poller.stats()["fired"] >= fired
    assert poller.stats()["polls"] < 20 * polls_per_second


def test_a_timer_that_was_cancelled_while_its_callback_hangs_is_not_parked_over_and_over() -> None:
    clock = VirtualClock(START)
    with memory_store() as store:
        namespace, _ = store.catalogue.create_namespace("n", num_shards=4, dedicated=False, now=START)
        poller = make_poller(store, ScriptedSender(lambda _: Script(status=None)), clock)
        put(store, [make_timer("t", namespace="n", callback_timeout_seconds=60)], START)

        async def main() -> None:
            stop = asyncio.Event()
            task = asyncio.create_task(poller.run(stop))
            await asyncio.sleep(1.5)
            store.timers.delete(namespace, [TimerRef("t")], now=clock.now())
            await asyncio.sleep(30.0)
            stop.set()
            await task

        run_virtually(clock, main())
    assert poller.stats()["superseded"] == 1
