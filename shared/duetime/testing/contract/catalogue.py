"""Namespaces, the shard map and the catalogue's secrets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import date
from itertools import pairwise

import pytest

from duetime.domain.calendars import Calendar
from duetime.domain.call_events import CallEventType
from duetime.domain.errors import NamespaceConflict
from duetime.domain.event_webhooks import EventWebhook
from duetime.domain.namespaces import EncryptedSecret, Misfire, Namespace, NamespaceSettings, Pause
from duetime.domain.shards import MAX_SHARED_SHARDS, ShardMap
from duetime.stores.core.store import Store
from duetime.testing.contract.builders import NOW, UNSTORABLE, make_namespace, seconds
from duetime.testing.contract.steps import read_all


def create(store: Store, name: str, num_shards: int = 4, *, dedicated: bool = False) -> Namespace:
    return store.catalogue.create_namespace(name, num_shards=num_shards, dedicated=dedicated, now=NOW)[0]


def test_a_namespace_is_as_it_was_created(store: Store) -> None:
    namespace, is_new = store.catalogue.create_namespace("orders", num_shards=16, dedicated=False, now=NOW)

    assert is_new
    assert namespace == Namespace("orders", num_shards=16, first_shard=0, dedicated=False, created_at=NOW)
    assert store.catalogue.get_namespace("orders") == namespace


def test_creating_a_namespace_again_changes_nothing(store: Store) -> None:
    first = create(store, "orders", 16)

    again, is_new = store.catalogue.create_namespace("orders", num_shards=16, dedicated=False, now=NOW + seconds(60))

    assert not is_new
    assert again == first


@pytest.mark.parametrize(("num_shards", "dedicated"), [(17, False), (15, False), (16, True)])
def test_another_shape_is_a_conflict(store: Store, num_shards: int, dedicated: bool) -> None:
    stored = create(store, "orders", 16)

    with pytest.raises(NamespaceConflict):
        create(store, "orders", num_shards, dedicated=dedicated)

    assert store.catalogue.get_namespace("orders") == stored


def test_a_dedicated_namespace_stays_dedicated(store: Store) -> None:
    stored = create(store, "vip", 8, dedicated=True)

    assert create(store, "vip", 8, dedicated=True) == stored
    with pytest.raises(NamespaceConflict):
        create(store, "vip", 8)


@pytest.mark.parametrize("changes", [0, 1])
def test_a_deleted_namespace_is_gone_and_its_name_is_free(store: Store, changes: int) -> None:
    kept, gone = create(store, "kept"), create(store, "gone", 8)
    for _ in range(changes):
        changed = store.catalogue.update_namespace(
            replace(gone, settings=SETTINGS), if_revision=gone.revision, now=NOW
        )
        assert changed is not None
        gone = changed

    assert store.catalogue.delete_namespace("gone", if_revision=gone.revision)

    assert store.catalogue.get_namespace("gone") is None
    assert store.catalogue.list_namespaces(cursor=None, limit=10, tenant_id=kept.tenant_id).items == [kept]
    assert store.catalogue.delete_namespace("gone", if_revision=gone.revision), "a repeat says the same"
    assert create(store, "gone", 5).num_shards == 5


def test_a_namespace_that_was_changed_meanwhile_is_not_deleted(store: Store) -> None:
    created = create(store, "orders")
    changed = store.catalogue.update_namespace(replace(created, settings=SETTINGS), if_revision=1, now=NOW)

    assert not store.catalogue.delete_namespace("orders", if_revision=1)

    assert store.catalogue.get_namespace("orders") == changed


def test_an_unknown_namespace_is_none(store: Store) -> None:
    assert store.catalogue.get_namespace("nobody") is None


@pytest.mark.parametrize("name", UNSTORABLE.values(), ids=UNSTORABLE)
def test_a_name_that_cannot_be_stored_is_not_found(store: Store, name: str) -> None:
    assert store.catalogue.get_namespace(name) is None
    assert store.catalogue.get_api_key(name) is None


def test_shared_namespaces_begin_at_shard_zero(store: Store) -> None:
    assert create(store, "a", 4).first_shard == 0
    assert create(store, "b", 16).first_shard == 0


def test_dedicated_ranges_never_overlap(store: Store) -> None:
    sizes = [3, 1, 16, 2, 5]
    namespaces = [create(store, f"d{size}", size, dedicated=True) for size in sizes]

    ranges = sorted((n.first_shard, n.first_shard + n.num_shards) for n in namespaces)

    assert [n.num_shards for n in namespaces] == sizes
    assert ranges[0][0] >= MAX_SHARED_SHARDS
    assert all(end <= start for (_, end), (start, _) in pairwise(ranges))


def test_namespaces_are_listed_by_name_each_once(store: Store) -> None:
    names = [f"ns-{index:02}" for index in range(7)]
    created = {name: create(store, name) for name in reversed(names)}

    found = read_all(lambda cursor: store.catalogue.list_namespaces(cursor=cursor, limit=3))

    assert len(store.catalogue.list_namespaces(cursor=None, limit=3).items) <= 3
    assert found == [created[name] for name in names]


def test_no_namespaces_make_an_empty_list(store: Store) -> None:
    assert store.catalogue.list_namespaces(cursor=None, limit=10).items == []


def test_the_shard_map_of_an_empty_store_is_empty(store: Store) -> None:
    assert store.catalogue.shard_map() == ShardMap()


def test_the_shard_map_covers_all_namespaces(store: Store) -> None:
    create(store, "a", 4)
    create(store, "b", 16)
    create(store, "c", 2)
    vip = create(store, "vip", 8, dedicated=True)
    vap = create(store, "vap", 3, dedicated=True)

    shard_map = store.catalogue.shard_map()

    assert shard_map.shared_shards == 16
    assert shard_map.dedicated_end == MAX_SHARED_SHARDS + 11
    assert {*range(16), *vip.shard_ids(), *vap.shard_ids()} == set(shard_map.shard_ids())


def test_the_first_candidate_becomes_the_secret(store: Store) -> None:
    assert store.catalogue.secret("cursor", b"\x00first\xff") == b"\x00first\xff"
    assert store.catalogue.secret("cursor", b"second") == b"\x00first\xff"


def test_secrets_of_other_names_are_others(store: Store) -> None:
    store.catalogue.secret("cursor", b"one")

    assert store.catalogue.secret("signing", b"two") == b"two"


def test_every_process_gets_the_same_secret(store: Store, reopen: Callable[[], Store]) -> None:
    store.catalogue.secret("cursor", b"one")

    assert reopen().catalogue.secret("cursor", b"two") == b"one"


SETTINGS = NamespaceSettings(
    retry_policy_json='{"maxAttempts": 3,  "backoffMultiplier": 1.50}',
    max_in_flight=7,
    rate_limit_per_second=0.1,
    misfire=Misfire.EXPIRE,
    min_schedule_interval_ms=90_000,
    calendars=(
        Calendar(name="a", weekdays=frozenset(), business_days=frozenset({date(2026, 12, 19)}), revision=7),
        Calendar(name="b", days_off=frozenset({date(2026, 12, 25), date(9999, 12, 31)})),
    ),
    pause=Pause(NOW, "the warehouse is closed"),
    resumed_at=NOW - seconds(60),
    deleting_since=NOW + seconds(60),
    webhook=EventWebhook(
        url="https://hooks.test/?key=1", event_types=(CallEventType.FAILED, CallEventType.SUCCEEDED), is_enabled=False
    ),
)
OLD_SECRET = EncryptedSecret("old", b"\x00ciphertext\xff", NOW, NOW + seconds(60))
NEW_SECRET = EncryptedSecret("new", b"", NOW + seconds(0.001))


def test_settings_and_secrets_are_kept_exactly(store: Store) -> None:
    created = create(store, "orders")
    wanted = replace(created, settings=SETTINGS, secrets=(OLD_SECRET, NEW_SECRET))

    stored = store.catalogue.update_namespace(wanted, if_revision=1, now=NOW)

    assert stored == replace(wanted, revision=2)
    assert store.catalogue.get_namespace("orders") == stored
    assert store.catalogue.list_namespaces(cursor=None, limit=1).items == [stored]


def test_creating_a_namespace_again_keeps_what_was_set(store: Store) -> None:
    wanted = replace(create(store, "orders"), settings=SETTINGS, secrets=(OLD_SECRET,))
    stored = store.catalogue.update_namespace(wanted, if_revision=1, now=NOW)

    assert create(store, "orders") == stored


def test_settings_and_secrets_can_be_cleared(store: Store) -> None:
    created = create(store, "orders")
    store.catalogue.update_namespace(
        replace(created, settings=SETTINGS, secrets=(OLD_SECRET,)), if_revision=1, now=NOW
    )

    cleared = store.catalogue.update_namespace(created, if_revision=2, now=NOW)

    assert cleared == replace(created, revision=3)
    assert store.catalogue.get_namespace("orders") == cleared


@pytest.mark.parametrize("revision", [2, 4, 5])
def test_a_namespace_of_another_revision_stays_as_it_is(store: Store, revision: int) -> None:
    created = create(store, "orders")
    for known in (1, 2):
        store.catalogue.update_namespace(replace(created, settings=SETTINGS), if_revision=known, now=NOW)

    assert store.catalogue.update_namespace(created, if_revision=revision, now=NOW) is None
    assert store.catalogue.update_namespace(created, if_revision=1, now=NOW) is None
    assert store.catalogue.get_namespace("orders") == replace(created, settings=SETTINGS, revision=3)


def test_what_never_changes_of_a_namespace_is_not_changed(store: Store) -> None:
    created = create(store, "orders", 4)
    other = replace(created, num_shards=8, first_shard=9, dedicated=True, created_at=NOW + seconds(9))

    assert store.catalogue.update_namespace(other, if_revision=1, now=NOW) == replace(created, revision=2)


def test_a_namespace_that_does_not_exist_is_not_made_by_an_update(store: Store) -> None:
    assert store.catalogue.update_namespace(make_namespace("nobody"), if_revision=1, now=NOW) is None
    assert store.catalogue.get_namespace("nobody") is None
