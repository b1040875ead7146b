"""Submitting: the namespace of a tenant's calls, and what a store says when others do the same at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from duetime.calls.submission import CallNamespaces, Submitter
from duetime.domain.errors import CallConflict, StoreUnavailable
from duetime.domain.namespaces import Namespace
from duetime.domain.service_calls import calls_namespace
from duetime.domain.timers import Timer
from duetime.stores.core.calls import CallStore
from duetime.stores.core.catalogue import Catalogue
from duetime.stores.core.store import Store
from duetime.stores.port.calls import ApplyStatus, CallRef
from duetime.testing.contract import call_builders as make
from tests.support.clock import NOW
from tests.support.parts import Overlay
from tests.support.stores import memory_store

TENANT = "acme"


@pytest.fixture
def store() -> Iterator[Store]:
    with memory_store() as store:
        yield store


class Counting(Overlay):
    """A catalogue that counts what is asked of it."""

    def __init__(self, catalogue: Catalogue, before_create: Callable[[], object] = lambda: None) -> None:
        super().__init__(catalogue)
        self._catalogue = catalogue
        self._before_create = before_create
        self.gets = 0

    def get_namespace(self, name: str) -> Namespace | None:
        self.gets += 1
        return self._catalogue.get_namespace(name)

    def create_namespace(self, name: str, **more: Any) -> Any:
        self._before_create()
        return self._catalogue.create_namespace(name, **more)


def namespaces_of(catalogue: Any, num_shards: int = 8) -> CallNamespaces:
    return CallNamespaces(catalogue, num_shards=num_shards)


def make_submitter(store: Store, *, calls: Any = None, stored: list[Timer] | None = None) -> Submitter:
    on_stored: Any = [].extend if stored is None else stored.extend
    return Submitter(
        store.calls if calls is None else calls,
        namespaces_of(store.catalogue),
        new_id=make.ids_at(NOW),
        on_stored=on_stored,
    )


# -- namespaces ----------------------------------------------------------------------------------------------------


def test_a_namespace_is_made_once_and_asked_for_once(store: Store) -> None:
    counting = Counting(store.catalogue)
    namespaces = namespaces_of(counting)
    made = [namespaces.ensure(TENANT, now=NOW) for _ in range(3)]
    assert len(set(made)) == 1
    assert counting.gets == 1
    stored = store.catalogue.get_namespace(calls_namespace(TENANT))
    assert stored is not None
    assert (stored.num_shards, stored.tenant_id, stored.dedicated) == (8, TENANT, False)


def test_one_that_exists_keeps_its_shards(store: Store) -> None:
    namespaces_of(store.catalogue, 8).ensure(TENANT, now=NOW)
    assert namespaces_of(store.catalogue, 32).ensure(TENANT, now=NOW).num_shards == 8


def test_of_two_that_make_it_with_other_numbers_the_first_one_counts(store: Store) -> None:
    racing = Counting(store.catalogue, lambda: namespaces_of(store.catalogue, 8).ensure(TENANT, now=NOW))
    assert namespaces_of(racing, 32).ensure(TENANT, now=NOW).num_shards == 8


def test_tenants_have_namespaces_of_their_own(store: Store) -> None:
    namespaces = namespaces_of(store.catalogue)
    names = [namespaces.ensure(tenant, now=NOW).name for tenant in ("a", "b", "a")]
    assert names == ["calls@a", "calls@b", "calls@a"]


# -- submissions ---------------------------------------------------------------------------------------------------


class Racing(Overlay):
    """A call store in which somebody else does ``act`` just before each of the first ``times`` writes."""

    def __init__(self, calls: CallStore, act: Callable[[], object], times: int) -> None:
        super().__init__(calls)
        self._calls = calls
        self._act = act
        self._times = times
        self.applied: list[ApplyStatus] = []

    def apply(self, *arguments: Any, **more: Any) -> list[ApplyStatus]:
        if self._times:
            self._times -= 1
            self._act()
        self.applied += self._calls.apply(*arguments, **more)
        return self.applied[-1:]


def test_one_that_is_beaten_gets_the_call_of_the_other(store: Store) -> None:
    stored: list[Timer] = []
    submission = make.submission(idempotency_key="k")
    other = make_submitter(store, stored=stored)
    racing = Racing(store.calls, lambda: other.submit(TENANT, submission, now=NOW), 1)
    submitted = make_submitter(store, calls=racing, stored=stored).submit(TENANT, submission, now=NOW)
    assert racing.applied == [ApplyStatus.EXISTS]
    assert not submitted.is_new
    assert [timer.timer_id for timer in stored] == [submitted.call.call_id]


def test_one_that_is_beaten_by_other_content_is_told_so(store: Store) -> None:
    other = make_submitter(store)
    racing = Racing(
        store.calls,
        lambda: other.submit(TENANT, make.submission(name="other", idempotency_key="k"), now=NOW),
        1,
    )
    with pytest.raises(CallConflict):
        make_submitter(store, calls=racing).submit(TENANT, make.submission(idempotency_key="k"), now=NOW)


def test_a_key_that_is_free_again_is_used(store: Store) -> None:
    """The other's call is removed between our write and our look."""
    calls = store.calls
    other = make_submitter(store)

    class Vanishing(Racing):
        def apply(self, *arguments: Any, **more: Any) -> list[ApplyStatus]:
            statuses = super().apply(*arguments, **more)
            if statuses == [ApplyStatus.EXISTS]:
                theirs = calls.find_by_idempotency_key(TENANT, "k", now=NOW)
                assert theirs is not None
                calls.delete(TENANT, theirs.call_id, now=NOW)
            return statuses

    submission = make.submission(idempotency_key="k")
    vanishing = Vanishing(calls, lambda: other.submit(TENANT, submission, now=NOW), 1)
    submitted = make_submitter(store, calls=vanishing).submit(TENANT, submission, now=NOW)
    assert vanishing.applied == [ApplyStatus.EXISTS, ApplyStatus.APPLIED]
    assert submitted.is_new
    always = Vanishing(calls, lambda: other.submit(TENANT, make.submission(idempotency_key="k"), now=NOW), 100)
    calls.delete(TENANT, submitted.call.call_id, now=NOW)
    with pytest.raises(StoreUnavailable):
        make_submitter(store, calls=always).submit(TENANT, submission, now=NOW)


def test_an_id_that_is_taken_is_not_taken_again(store: Store) -> None:
    bits = iter([7, 7, 8])
    submitter = Submitter(
        store.calls,
        namespaces_of(store.catalogue),
        new_id=make.ids_at(NOW),
        on_stored=lambda _: None,
        random_bits=lambda count: next(bits),
    )
    one, two = (submitter.submit(TENANT, make.submission(), now=NOW).call for _ in range(2))
    assert one.call_id != two.call_id
    refs = [CallRef(TENANT, one.call_id), CallRef(TENANT, two.call_id)]
    assert store.calls.get(refs, now=NOW) == [one, two]
