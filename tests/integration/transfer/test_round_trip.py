"""Everything that a store holds goes to any other store and comes back the same, to the byte."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from duetime.domain.shards import MAX_SHARED_SHARDS
from duetime.stores.core.store import Store
from duetime.stores.open import open_store
from duetime.stores.port.transfer import LoadStatus
from duetime.stores.time_source import TimeSource
from tests.contract.conftest import STORES
from tests.support.clock import NOW
from tests.support.server_stores import server_names
from tests.support.transfer import exported, fill, imported


def new_store() -> Store:
    store = open_store("sqlite://", time_source=TimeSource.CALLER)
    store.initialise()
    return store


@pytest.fixture
def source() -> Iterator[Store]:
    store = new_store()
    fill(store)
    yield store
    store.close()


@pytest.fixture(params=sorted(STORES))
def target(request: pytest.FixtureRequest) -> Iterator[Store]:
    with STORES[request.param](request) as subject:
        yield subject.store


@pytest.fixture
def back() -> Iterator[Store]:
    store = new_store()
    yield store
    store.close()


def records_of(data: bytes) -> list[bytes]:
    """Checkpoints stand where a store's pages end."""
    lines = data.splitlines()[1:-1]
    return [line for line in lines if not line.startswith(b'{"kind":"checkpoint"')]


def test_a_store_moves_to_another_and_back(source: Store, target: Store, back: Store) -> None:
    data = exported(source)

    loaded = imported(target, data)
    there = exported(target)
    imported(back, there)

    assert set(loaded.statuses) == {LoadStatus.LOADED}
    assert sorted(records_of(there)) == sorted(records_of(data))
    assert exported(back) == data


@pytest.mark.server
@pytest.mark.skipif(len(server_names()) < 2, reason="no two servers are named by DUETIME_TEST_<STORE>_URL")
def test_a_store_moves_from_server_to_server_and_home(
    request: pytest.FixtureRequest, source: Store, back: Store
) -> None:
    """Each reads what another kind wrote, in that one's order."""
    data = exported(source)

    for name in server_names():
        with STORES[name](request) as subject:
            imported(subject.store, data)
            data = exported(subject.store)
    imported(back, data)

    assert exported(back) == exported(source)


def test_a_file_that_is_imported_again_changes_nothing(source: Store, target: Store) -> None:
    data = exported(source)
    imported(target, data)

    again = imported(target, data)

    assert set(again.statuses) == {LoadStatus.PRESENT}
    assert sorted(records_of(exported(target))) == sorted(records_of(data))


def test_dedicated_namespaces_keep_apart_from_those_that_come_after(source: Store, target: Store) -> None:
    imported(target, exported(source))

    own = target.catalogue.get_namespace("own")
    new, _ = target.catalogue.create_namespace("new", num_shards=5, dedicated=True, now=NOW)

    assert own is not None
    assert own.first_shard == MAX_SHARED_SHARDS
    assert new.first_shard == own.first_shard + own.num_shards
    assert target.catalogue.shard_map().shared_shards == 4
