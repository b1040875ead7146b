from __future__ import annotations

from typing import Any

import pytest

from duetime.api.http.authentication import (
    MAX_CACHED_KEYS,
    KeyAuthenticator,
    refuse_key_in_query,
)
from duetime.api.http.errors import Unauthenticated
from duetime.api.http.request import Request
from duetime.domain.api_keys import SECRET_BYTES, ApiKey, hash_of, key_text, new_secret
from duetime.domain.errors import InvalidInput, StoreUnavailable
from duetime.domain.principals import Principal, Role
from duetime.testing.contract.builders import seconds
from tests.support.clock import NOW, FakeClock

SECRET = new_secret(b"s" * SECRET_BYTES)
OTHER_SECRET = new_secret(b"o" * SECRET_BYTES)
TEXT = key_text("k1", SECRET)
PRINCIPAL = Principal("acme", Role.WRITER, "k1")


class Keys:
    """The one operation of a store that is needed."""

    def __init__(self) -> None:
        self.kept = {"k1": make_key("k1")}
        self.reads = 0
        self.is_available = True

    def get_api_key(self, key_id: str) -> ApiKey | None:
        self.reads += 1
        if not self.is_available:
            raise StoreUnavailable("away")
        return self.kept.get(key_id)


def make_key(key_id: str, secret: str = SECRET, **changes: Any) -> ApiKey:
    values: dict[str, Any] = {"tenant_id": "acme", "role": Role.WRITER, "created_at": NOW} | changes
    return ApiKey(key_id=key_id, secret_hash=hash_of(secret), **values)


@pytest.fixture
def keys() -> Keys:
    return Keys()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def authenticator(keys: Keys, clock: FakeClock) -> KeyAuthenticator:
    return KeyAuthenticator(keys, clock, cache_seconds=5)


@pytest.mark.parametrize("header", [f"Bearer {TEXT}", f"bearer {TEXT}", f"BEARER  {TEXT} "])
def test_a_good_key_names_its_principal(authenticator: KeyAuthenticator, header: str) -> None:
    assert authenticator.authenticate(header) == PRINCIPAL


@pytest.mark.parametrize("header", [None, ""])
def test_no_key(authenticator: KeyAuthenticator, header: str | None) -> None:
    with pytest.raises(Unauthenticated) as refusal:
        authenticator.authenticate(header)
    assert not refusal.value.was_given


@pytest.mark.parametrize(
    "header",
    [
        TEXT,
        "Bearer",
        "Bearer ",
        f"Basic {TEXT}",
        f"Bearer {TEXT}, Bearer {TEXT}",
        f"Bearer {TEXT} x",
        f"Bearer {TEXT[:-1]}",
        f"Bearer {TEXT[4:]}",
        f"Bearer {TEXT}é",
        "Bearer " + "x" * 100_000,
    ],
)
def test_what_is_no_key_is_refused_without_a_look_into_the_store(
    authenticator: KeyAuthenticator, keys: Keys, header: str
) -> None:
    with pytest.raises(Unauthenticated) as refusal:
        authenticator.authenticate(header)
    assert refusal.value.was_given
    assert keys.reads == 0
    assert SECRET not in str(refusal.value)


def test_an_unknown_id_and_a_wrong_secret_read_alike(authenticator: KeyAuthenticator) -> None:
    messages = []
    for text in (key_text("nobody", SECRET), key_text("k1", OTHER_SECRET)):
        with pytest.raises(Unauthenticated) as refusal:
            authenticator.authenticate(f"Bearer {text}")
        messages.append(str(refusal.value))
    assert messages == ["the API key is not valid"] * 2


def test_a_good_key_is_not_asked_for_again_for_a_while(
    authenticator: KeyAuthenticator, keys: Keys, clock: FakeClock
) -> None:
    for _ in range(3):
        authenticator.authenticate(f"Bearer {TEXT}")
        clock.advance(1.6)
    assert keys.reads == 1

    clock.advance(0.2)
    authenticator.authenticate(f"Bearer {TEXT}")
    assert keys.reads == 2


def test_a_deleted_key_works_on_until_it_is_asked_for_again(
    authenticator: KeyAuthenticator, keys: Keys, clock: FakeClock
) -> None:
    authenticator.authenticate(f"Bearer {TEXT}")
    keys.kept.clear()

    clock.advance(4.999)
    assert authenticator.authenticate(f"Bearer {TEXT}") == PRINCIPAL
    clock.advance(0.001)
    with pytest.raises(Unauthenticated):
        authenticator.authenticate(f"Bearer {TEXT}")


def test_use_does_not_prolong_what_is_cached(authenticator: KeyAuthenticator, keys: Keys, clock: FakeClock) -> None:
    for _ in range(10):
        authenticator.authenticate(f"Bearer {TEXT}")
        clock.advance(1)
    assert keys.reads == 2


def test_a_cached_key_expires_at_its_instant(authenticator: KeyAuthenticator, keys: Keys, clock: FakeClock) -> None:
    keys.kept["k1"] = make_key("k1", expires_at=NOW + seconds(2))
    authenticator.authenticate(f"Bearer {TEXT}")

    clock.advance(2)
    with pytest.raises(Unauthenticated, match="has expired"):
        authenticator.authenticate(f"Bearer {TEXT}")
    assert keys.reads == 1


def test_what_was_refused_is_asked_for_each_time(authenticator: KeyAuthenticator, keys: Keys) -> None:
    new = make_key("k2", OTHER_SECRET)
    header = f"Bearer {key_text('k2', OTHER_SECRET)}"
    with pytest.raises(Unauthenticated):
        authenticator.authenticate(header)

    keys.kept["k2"] = new
    assert authenticator.authenticate(header).key_id == "k2"


def test_a_cached_key_does_not_vouch_for_another_secret(authenticator: KeyAuthenticator) -> None:
    authenticator.authenticate(f"Bearer {TEXT}")

    with pytest.raises(Unauthenticated):
        authenticator.authenticate(f"Bearer {key_text('k1', OTHER_SECRET)}")


def test_a_store_that_does_not_answer_lets_nobody_in(authenticator: KeyAuthenticator, keys: Keys) -> None:
    keys.is_available = False

    with pytest.raises(StoreUnavailable):
        authenticator.authenticate(f"Bearer {TEXT}")


def test_the_cache_is_bounded_and_keeps_what_is_used(
    authenticator: KeyAuthenticator, keys: Keys, clock: FakeClock
) -> None:
    for number in range(MAX_CACHED_KEYS + 10):
        key_id = f"n{number}"
        keys.kept[key_id] = make_key(key_id)
        authenticator.authenticate(f"Bearer {key_text(key_id, SECRET)}")
        if number == MAX_CACHED_KEYS - 1:
            authenticator.authenticate(f"Bearer {key_text('n0', SECRET)}")
    keys.reads = 0

    authenticator.authenticate(f"Bearer {key_text('n0', SECRET)}")
    assert keys.reads == 0
    authenticator.authenticate(f"Bearer {key_text('n1', SECRET)}")
    assert keys.reads == 1


def test_the_cache_holds_no_key(authenticator: KeyAuthenticator) -> None:
    authenticator.authenticate(f"Bearer {TEXT}")

    assert SECRET not in repr(vars(authenticator))


def request(query: str) -> Request:
    return Request("GET", "/", query, {}, "r1", "", False)


@pytest.mark.parametrize("query", [f"key={TEXT}", TEXT, f"a=b&c=%64tk_{TEXT[4:]}", "x=dtk_"])
def test_a_key_in_the_query_is_refused(query: str) -> None:
    with pytest.raises(InvalidInput, match="delete it") as refusal:
        refuse_key_in_query(request(query))
    assert SECRET not in str(refusal.value)


@pytest.mark.parametrize("query", ["", "tag=red&limit=5", "cursor=abc%2F"])
def test_other_queries_pass(query: str) -> None:
    refuse_key_in_query(request(query))
