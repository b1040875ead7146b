"""An API over an empty store in memory, and what tests want to see of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import count
from typing import Any

from duetime.api.context import ApiContext
from duetime.api.handler import build_handler
from duetime.delivery.encryption import SecretBox
from duetime.domain.clock import Clock
from duetime.domain.namespaces import Namespace
from duetime.domain.timers import Timer
from duetime.runtime.local_key import LocalSecretBox, ProcessKey
from duetime.stores.core.store import Store
from tests.support.clock import FakeClock
from tests.support.http import Api
from tests.support.parts import Overlay
from tests.support.stores import memory_store


@dataclass(frozen=True, slots=True)
class World:
    """``stored`` collects what the handler told of; new ids are ``id-1``, ``id-2`` ..."""

    store: Store
    clock: FakeClock
    namespace: Namespace
    api: Api
    stored: list[Timer] = field(default_factory=list)
    secret_box: SecretBox | None = None

    def timer(self, timer_id: str) -> Timer:
        timer = self.store.timers.get(self.namespace, timer_id, now=self.clock.now())
        assert timer is not None
        return timer


@contextmanager
def api_world(**of_context: Any) -> Iterator[World]:
    """A namespace ``default`` with four shards exists. ``of_context``: what the API's context has otherwise."""
    with memory_store() as store:
        clock = FakeClock()
        namespace, _ = store.catalogue.create_namespace("default", num_shards=4, dedicated=False, now=clock.now())
        stored: list[Timer] = []
        box = LocalSecretBox(ProcessKey())
        context = replace(context_for(store, clock, stored, secret_box=box), **of_context)
        yield World(store, clock, namespace, Api(build_handler(context)), stored, box)


class ContendedStore(Overlay):
    """A store in which somebody else changes the namespace just before each of the first ``times`` updates."""

    def __init__(self, world: World, times: int) -> None:
        catalogue = world.store.catalogue
        super().__init__(world.store, catalogue=Overlay(catalogue, update_namespace=self._update_namespace))
        self._catalogue = catalogue
        self._times = times

    def _update_namespace(self, namespace: Namespace, *, if_revision: int, now: datetime) -> Namespace | None:
        if self._times:
            self._times -= 1
            current = self._catalogue.get_namespace(namespace.name)
            assert current is not None
            other = replace(
                current, settings=replace(current.settings, rate_limit_per_second=float(current.revision))
            )
            assert self._catalogue.update_namespace(other, if_revision=current.revision, now=now)
        return self._catalogue.update_namespace(namespace, if_revision=if_revision, now=now)


def context_for(
    store: Store,
    clock: Clock,
    stored: list[Timer] | None = None,
    *,
    secret_box: SecretBox | None = None,
    new_id: Callable[[], str] | None = None,
) -> ApiContext:
    numbers = count(1)

    def on_stored(timers: Sequence[Timer]) -> None:
        if stored is not None:
            stored.extend(timers)

    return ApiContext(
        store=store,
        clock=clock,
        new_id=new_id or (lambda: f"id-{next(numbers)}"),
        on_stored=on_stored,
        secret_box=secret_box,
    )
