"""What a namespace must not do to another, or to itself, when its limits or its secrets change while timers wait."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from duetime.delivery.encryption import SecretUnavailable
from duetime.delivery.port import Callback
from duetime.domain.namespaces import EncryptedSecret, NamespaceSettings
from duetime.engine import namespace_cache
from duetime.engine.namespace_cache import NamespaceCache
from duetime.stores.core.store import Store
from duetime.stores.port.timers import TimerRef
from duetime.testing.contract.builders import make_namespace
from duetime.testing.virtual_time import VirtualClock
from tests.support.clock import NOW as START
from tests.support.engine import make_poller, make_timer, put, run
from tests.support.scripted_sender import Script, ScriptedSender


def change(store: Store, settings: NamespaceSettings, *secrets: EncryptedSecret) -> None:
    known = store.catalogue.get_namespace("default")
    assert known is not None
    wanted = replace(known, settings=settings, secrets=secrets)
    assert store.catalogue.update_namespace(wanted, if_revision=known.revision, now=START) is not None


def test_more_namespaces_than_are_remembered_are_known_while_their_page_is_offered(
    store: Store, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"n{number}" for number in range(4)]
    for name in names:
        store.catalogue.create_namespace(name, num_shards=1, dedicated=False, now=START)
    known = NamespaceCache(store.catalogue, clock=clock, secret_box=None)
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
    """Notes of each callback whether it is signed."""

    def __init__(self) -> None:
        super().__init__(lambda _: Script(delay_seconds=0.2))
        self.signed: list[bool] = []

    def submit(self, callbacks: Sequence[Callback]) -> None:
        for each in callbacks:
            self.signed.append(any(line.startswith("webhook-signature:") for line in each.headers))
        super().submit(callbacks)


def test_what_waits_while_its_namespace_s_secret_gets_lost_is_not_sent_unsigned(
    store: Store, clock: VirtualClock
) -> None:
    box, sender = Box(), Signatures()

    def rotate(secret: str) -> None:
        change(store, NamespaceSettings(max_in_flight=4), EncryptedSecret(secret, b"ciphertext", START, None))

    rotate("first")
    put(store, [make_timer(f"t{n}") for n in range(500)], START)

    async def script() -> None:
        await asyncio.sleep(5.0)
        box.is_down = True
        rotate("second")
        await asyncio.sleep(20.0)
        assert len(sender.signed) < 500
        box.is_down = False
        await asyncio.sleep(45.0)

    run(clock, make_poller(store, sender, clock, secret_box=box), script)
    assert sender.signed == [True] * 500


@pytest.mark.parametrize(
    ("settings", "fired", "polls_per_second"),
    [(NamespaceSettings(rate_limit_per_second=15.0), 300, 30), (NamespaceSettings(max_in_flight=2), 399, 15)],
)
def test_a_limited_backlog_is_not_read_once_for_every_turn(
    store: Store, clock: VirtualClock, settings: NamespaceSettings, fired: int, polls_per_second: int
) -> None:
    change(store, settings)
    poller = make_poller(store, ScriptedSender(lambda _: Script(delay_seconds=0.1)), clock)
    put(store, [make_timer(f"t{n}") for n in range(3000)], START)
    run(clock, poller, 20)
    assert poller.stats()["fired"] >= fired
    assert poller.stats()["polls"] < 20 * polls_per_second


def test_a_timer_that_was_cancelled_while_its_callback_hangs_is_not_parked_over_and_over(
    store: Store, clock: VirtualClock
) -> None:
    poller = make_poller(store, ScriptedSender(lambda _: Script(status=None)), clock)
    put(store, [make_timer("t", callback_timeout_seconds=60)], START)

    async def script() -> None:
        await asyncio.sleep(1.5)
        store.timers.delete(make_namespace("default"), [TimerRef("t")], now=clock.now())
        await asyncio.sleep(30.0)

    run(clock, poller, script)
    assert poller.stats()["superseded"] == 1
