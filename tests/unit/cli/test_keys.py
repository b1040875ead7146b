"""``duetime keys`` on an SQLite store."""

from __future__ import annotations

from datetime import timedelta

import pytest

from duetime.api.http.authentication import KeyAuthenticator
from duetime.domain.principals import Principal, Role
from duetime.runtime.clock import SystemClock
from duetime.stores.core.store import Store
from tests.support.commands import Cli


def principal(store: Store, key: str) -> Principal:
    return KeyAuthenticator(store.catalogue, SystemClock(), cache_seconds=0).authenticate(f"Bearer {key}")


def test_a_key_is_all_that_standard_output_has_and_it_is_good(cli: Cli, store: Store) -> None:
    out, err = cli("keys", "create", "--tenant", "acme", "--role", "admin", "--name", "first", "--expires-in", "90d")

    (key,) = out.splitlines()
    assert principal(store, key) == Principal("acme", Role.ADMIN, key.split("_")[1])
    assert key not in err
    (kept,) = store.catalogue.list_api_keys("acme", cursor=None, limit=5).items
    assert kept.name == "first"
    assert kept.expires_at is not None
    assert abs(kept.expires_at - kept.created_at - timedelta(days=90)) < timedelta(seconds=1)
    assert "valid until" in err


def test_without_a_tenant_it_is_the_default_ones(cli: Cli, store: Store) -> None:
    out, err = cli("keys", "create", "--role", "reader", "--expires-at", "2126-01-01T00:00:00Z")

    assert principal(store, out.strip()).tenant_id == "default"
    assert "valid until 2126-01-01T00:00:00.000Z" in err


def test_a_list_shows_everything_but_the_keys(cli: Cli, store: Store) -> None:
    roles = [str(role) for role in Role]
    keys = [
        cli("keys", "create", "--role", role, "--tenant", "acme", "--name", f"the {role}")[0].strip()
        for role in roles
    ]
    cli("keys", "create", "--role", "admin", "--tenant", "globex")

    out, _ = cli("keys", "list", "--tenant", "acme")

    head, *rows = out.splitlines()
    assert head.split() == ["ID", "ROLE", "CREATED", "VALID", "UNTIL", "NAME"]
    ids = [key.split("_")[1] for key in keys]
    assert [tuple(row.split()[:2]) for row in rows] == list(zip(ids, roles, strict=True))
    assert all(f"the {role}" in row for role, row in zip(roles, rows, strict=True))
    assert not any(key.split("_")[2] in out for key in keys)


def test_a_deleted_key_is_gone(cli: Cli, store: Store) -> None:
    key = cli("keys", "create", "--role", "admin", "--tenant", "acme")[0].strip()
    key_id = key.split("_")[1]

    _, refused = cli("keys", "delete", key_id, "--tenant", "globex", code=1)
    assert "the tenant has no API key" in refused
    cli("keys", "delete", key_id, "--tenant", "acme")

    assert store.catalogue.get_api_key(key_id) is None
    cli("keys", "delete", key_id, "--tenant", "acme", code=1)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["create"], "'--role'"),
        (["create", "--role", "owner"], "'--role'"),
        (["create", "--role", "admin", "--tenant", "Acme"], "--tenant: must match"),
        (["create", "--role", "admin", "--expires-in", "soon"], "'--expires-in'"),
        (["list", "--tenant", "calls@acme"], "--tenant: "),
        (["delete"], "Missing argument 'ID'"),
    ],
)
def test_a_usage_error_stores_nothing(cli: Cli, store: Store, words: list[str], reason: str) -> None:
    out, err = cli("keys", *words, code=2)

    assert (out, reason in err) == ("", True)
    assert store.catalogue.list_api_keys("default", cursor=None, limit=5).items == []


@pytest.mark.parametrize(
    ("words", "reason"), [(["--name", "a\nb"], "control characters"), (["--expires-in", "0s"], "more than 0")]
)
def test_what_the_api_refuses_stores_nothing(cli: Cli, store: Store, words: list[str], reason: str) -> None:
    out, err = cli("keys", "create", "--role", "admin", *words, code=1)

    assert (out, reason in err, err.count("\n")) == ("", True, 1), err
    assert store.catalogue.list_api_keys("default", cursor=None, limit=5).items == []


def test_a_store_that_is_not_ready_is_one_line(cli: Cli) -> None:
    _, err = cli("keys", "create", "--role", "admin", code=1)

    assert "duetime init" in err
