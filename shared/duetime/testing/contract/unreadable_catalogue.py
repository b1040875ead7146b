"""Namespaces and API keys that cannot be read: shown as such, harmless to others; and what a newer version wrote."""

from __future__ import annotations

from dataclasses import replace

import pytest

from duetime.domain.api_keys import ApiKey, hash_of
from duetime.domain.errors import NamespaceUnreadable, StoreError
from duetime.domain.event_webhooks import EventWebhook
from duetime.domain.namespaces import Namespace, NamespaceSettings
from duetime.domain.principals import Role
from duetime.stores.core.store import Store
from duetime.testing.contract.builders import NOW
from duetime.testing.contract.steps import key_of_later_role, read_all, unreadable_namespace


@pytest.fixture
def bad_namespace(store: Store) -> Namespace:
    return unreadable_namespace(store, "bad")


def test_an_unreadable_namespace_says_so_and_keeps_its_shards(store: Store, bad_namespace: Namespace) -> None:
    found = store.catalogue.get_namespace("bad")

    assert found == bad_namespace
    assert found.unreadable
    assert "many" not in found.unreadable
    assert found.settings == NamespaceSettings()
    assert found.num_shards == 4


def test_an_unreadable_namespace_hides_no_other(store: Store, bad_namespace: Namespace, orders: Namespace) -> None:
    of_tenant = read_all(
        lambda cursor: store.catalogue.list_namespaces(cursor=cursor, limit=1, tenant_id=orders.tenant_id)
    )
    of_all = read_all(lambda cursor: store.catalogue.list_namespaces(cursor=cursor, limit=1))
    whole = read_all(lambda cursor: store.transfer.all_namespaces(cursor=cursor, limit=1))

    assert of_tenant == of_all == whole == [bad_namespace, orders]


def test_an_unreadable_namespace_is_not_made_again(store: Store, bad_namespace: Namespace) -> None:
    with pytest.raises(NamespaceUnreadable):
        store.catalogue.create_namespace("bad", num_shards=4, dedicated=False, now=NOW)

    assert store.catalogue.get_namespace("bad") == bad_namespace


def test_what_a_newer_version_has_set_survives_a_change_by_this_one(store: Store, orders: Namespace) -> None:
    webhook = EventWebhook(url="https://x.test/", event_types=("ServiceCallPaused",), unknown_json='{"batch": 5}')
    settings = NamespaceSettings(max_in_flight=3, webhook=webhook, unknown_json='{"quietHours": {"by": [1.5, null]}}')
    stored = store.catalogue.update_namespace(replace(orders, settings=settings), if_revision=1, now=NOW)
    assert stored is not None
    assert stored.settings == settings

    change = replace(stored, settings=replace(stored.settings, max_in_flight=None))
    store.catalogue.update_namespace(change, if_revision=2, now=NOW)

    found = store.catalogue.get_namespace("orders")
    assert found is not None
    assert found.unreadable is None
    assert found.settings == replace(settings, max_in_flight=None)


def test_a_key_whose_role_is_not_known_is_listed_and_can_be_deleted(store: Store) -> None:
    good = ApiKey(key_id="b", tenant_id="acme", role=Role.ADMIN, secret_hash=hash_of("s"), created_at=NOW)
    try:
        is_stored = store.catalogue.create_api_key(key_of_later_role("a", "acme", secret="s"))
    except StoreError:
        is_stored = False
    if not is_stored:  # MySQL passes over a row that fails a check
        pytest.skip("the database refuses such a role")
    assert store.catalogue.create_api_key(good)

    listed = read_all(lambda cursor: store.catalogue.list_api_keys("acme", cursor=cursor, limit=1))
    everyone = read_all(lambda cursor: store.transfer.all_api_keys(cursor=cursor, limit=1))

    assert listed == everyone
    assert listed[0] == store.catalogue.get_api_key("a")
    assert (listed[0].role, listed[0].tenant_id, listed[0].created_at) == (None, "acme", NOW)
    assert listed[0].unreadable
    assert listed[1] == good
    assert store.catalogue.delete_api_key("acme", "a")
    assert store.catalogue.get_api_key("a") is None
