"""What belongs to a tenant: its namespaces and its API keys. Nobody else's call meets them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import pytest

from duetime.domain.api_keys import ApiKey, hash_of
from duetime.domain.errors import NamespaceConflict
from duetime.domain.namespaces import Namespace
from duetime.domain.principals import Role
from duetime.domain.tenants import DEFAULT_TENANT, internal_namespace
from duetime.stores.core.store import Store
from duetime.stores.port.pages import Page
from duetime.stores.port.timers import PutMode
from duetime.testing.contract.builders import NOW, make_timer, seconds
from duetime.testing.contract.steps import read_all

T = TypeVar("T")


def create(store: Store, name: str, tenant_id: str, *, num_shards: int = 4) -> Namespace:
    return store.catalogue.create_namespace(
        name, num_shards=num_shards, dedicated=False, now=NOW, tenant_id=tenant_id
    )[0]


def names(store: Store, tenant_id: str | None, *, limit: int = 2) -> list[str]:
    found = read_all(lambda cursor: store.catalogue.list_namespaces(cursor=cursor, limit=limit, tenant_id=tenant_id))
    return [namespace.name for namespace in found]


class TestNamespaces:
    def test_one_belongs_to_the_tenant_that_it_was_created_for(self, store: Store) -> None:
        stored = create(store, "orders", "acme")

        assert stored.tenant_id == "acme"
        assert store.catalogue.get_namespace("orders") == stored

    def test_one_of_nobody_belongs_to_the_default_tenant(self, store: Store) -> None:
        stored, _ = store.catalogue.create_namespace("orders", num_shards=4, dedicated=False, now=NOW)

        assert stored.tenant_id == DEFAULT_TENANT

    @pytest.mark.parametrize("num_shards", [4, 7])
    def test_a_name_that_another_tenant_has_is_not_available(self, store: Store, num_shards: int) -> None:
        stored = create(store, "orders", "acme")

        with pytest.raises(NamespaceConflict) as refusal:
            create(store, "orders", "globex", num_shards=num_shards)

        assert str(refusal.value) == "the name 'orders' is not available"
        assert store.catalogue.get_namespace("orders") == stored
        assert names(store, "globex") == []

    def test_the_tenant_never_changes(self, store: Store) -> None:
        stored = create(store, "orders", "acme")

        assert store.catalogue.update_namespace(
            replace(stored, tenant_id="globex"), if_revision=1, now=NOW
        ) == replace(stored, revision=2)
        assert names(store, "acme") == ["orders"]
        assert names(store, "globex") == []

    def test_a_list_has_those_of_its_tenant_in_order_each_once(self, store: Store) -> None:
        for index in range(9):
            create(store, f"ns-{8 - index}", ("acme", "acm", "acme.eu")[index % 3])

        assert names(store, "acme") == ["ns-2", "ns-5", "ns-8"]
        assert names(store, "acm") == ["ns-1", "ns-4", "ns-7"]
        assert names(store, "acme.eu") == ["ns-0", "ns-3", "ns-6"]
        assert names(store, "nobody") == []
        assert names(store, None) == [f"ns-{index}" for index in range(9)]

    def test_a_list_shows_what_was_changed(self, store: Store) -> None:
        stored = create(store, "orders", "acme")
        changed = store.catalogue.update_namespace(
            replace(stored, settings=replace(stored.settings, max_in_flight=3)), if_revision=1, now=NOW
        )

        assert store.catalogue.list_namespaces(cursor=None, limit=5, tenant_id="acme").items == [changed]

    def test_no_list_has_internal_ones(self, store: Store) -> None:
        for tenant_id in ("acme", "globex", "initech"):
            create(store, internal_namespace("calls", tenant_id), tenant_id)
            create(store, internal_namespace("events", tenant_id), tenant_id)
        create(store, "orders", "acme")

        # A page as small as can be: what is left out must not cost pages of its own.
        assert store.catalogue.list_namespaces(cursor=None, limit=1, tenant_id="acme").items[0].name == "orders"
        assert store.catalogue.list_namespaces(cursor=None, limit=1).items[0].name == "orders"
        assert names(store, "acme") == names(store, None) == ["orders"]

    def test_an_internal_one_is_like_any_other_apart_from_that(self, store: Store) -> None:
        longest = "a" * 55
        calls = create(store, internal_namespace("events", longest), longest)
        other = create(store, internal_namespace("events", "a"), "a")

        assert store.catalogue.get_namespace(calls.name) == calls
        assert create(store, calls.name, longest) == calls
        with pytest.raises(NamespaceConflict):
            create(store, calls.name, "globex")
        for namespace in (calls, other):
            timer = make_timer(namespace, "t1")
            store.timers.put([timer], mode=PutMode.CREATE, now=NOW)
            assert store.timers.get(namespace, "t1", now=NOW) == timer
        store.timers.delete(other, [], now=NOW)
        assert store.catalogue.update_namespace(calls, if_revision=1, now=NOW) == replace(calls, revision=2)


def api_key(key_id: str, tenant_id: str = "acme", **changes: object) -> ApiKey:
    key = ApiKey(
        key_id=key_id,
        tenant_id=tenant_id,
        role=Role.WRITER,
        name="the shop’s",
        secret_hash=hash_of(f"secret of {key_id}"),
        created_at=NOW,
        expires_at=NOW + seconds(3600),
    )
    return replace(key, **changes)  # type: ignore[arg-type]


class TestApiKeys:
    @pytest.mark.parametrize("role", Role)
    def test_one_is_as_it_was_created(self, store: Store, role: Role) -> None:
        keys = [api_key("k1", role=role), api_key("k2", role=role, name="", expires_at=None)]

        assert [store.catalogue.create_api_key(key) for key in keys] == [True, True]

        assert [store.catalogue.get_api_key(key.key_id) for key in keys] == keys

    def test_an_unknown_one_is_none(self, store: Store) -> None:
        assert store.catalogue.get_api_key("nobody") is None
        assert store.catalogue.list_api_keys("acme", cursor=None, limit=5) == Page([], None)

    @pytest.mark.parametrize("tenant_id", ["acme", "globex"])
    def test_an_id_is_taken_once_for_all_tenants(self, store: Store, tenant_id: str) -> None:
        store.catalogue.create_api_key(api_key("k1"))

        assert not store.catalogue.create_api_key(api_key("k1", tenant_id, role=Role.ADMIN))

        assert store.catalogue.get_api_key("k1") == api_key("k1")
        assert store.catalogue.list_api_keys("globex", cursor=None, limit=5).items == []

    def test_a_list_has_those_of_its_tenant_in_order_each_once(self, store: Store) -> None:
        keys = [api_key(f"k{index}", ("acme", "acm", "acme.eu")[index % 3]) for index in range(9)]
        for key in reversed(keys):
            store.catalogue.create_api_key(key)

        for start, tenant_id in enumerate(("acme", "acm", "acme.eu")):
            found = read_all(lambda cursor, t=tenant_id: store.catalogue.list_api_keys(t, cursor=cursor, limit=2))  # type: ignore[misc]
            assert found == keys[start::3]

    def test_a_deleted_one_is_gone(self, store: Store) -> None:
        store.catalogue.create_api_key(api_key("k1"))
        store.catalogue.create_api_key(api_key("k2"))

        assert store.catalogue.delete_api_key("acme", "k1")

        assert store.catalogue.get_api_key("k1") is None
        assert store.catalogue.list_api_keys("acme", cursor=None, limit=5).items == [api_key("k2")]
        assert not store.catalogue.delete_api_key("acme", "k1")

    def test_another_tenant_deletes_nothing(self, store: Store) -> None:
        store.catalogue.create_api_key(api_key("k1"))

        assert not store.catalogue.delete_api_key("globex", "k1")

        assert store.catalogue.get_api_key("k1") == api_key("k1")
        assert store.catalogue.list_api_keys("acme", cursor=None, limit=5).items == [api_key("k1")]

    def test_an_expired_one_is_kept(self, store: Store) -> None:
        store.catalogue.create_api_key(api_key("k1", created_at=NOW - seconds(60), expires_at=NOW - seconds(1)))

        found = store.catalogue.get_api_key("k1")

        assert found is not None
        assert found.is_expired(NOW)

    def test_another_process_sees_it(self, store: Store, reopen: Callable[[], Store]) -> None:
        store.catalogue.create_api_key(api_key("k1"))

        assert reopen().catalogue.get_api_key("k1") == api_key("k1")
