from __future__ import annotations

import re
from hashlib import sha256
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duetime.domain.api_keys import (
    KEY_PREFIX,
    SECRET_BYTES,
    ApiKey,
    check_key_name,
    hash_of,
    is_key_id,
    key_text,
    new_secret,
    parse_key,
)
from duetime.domain.principals import Principal, Role
from duetime.testing.contract.builders import seconds
from tests.support.clock import NOW

SECRET = new_secret(bytes(range(SECRET_BYTES)))
KEY = ApiKey(
    key_id="0190-a", tenant_id="acme", role=Role.WRITER, secret_hash=hash_of(SECRET), created_at=NOW, expires_at=None
)


@given(st.binary(min_size=SECRET_BYTES, max_size=SECRET_BYTES))
def test_a_key_is_read_as_it_was_written(random_bytes: bytes) -> None:
    secret = new_secret(random_bytes)
    text = key_text("0190f3c2-7c1e-7000-8000-00000000000a", secret)

    assert parse_key(text) == ("0190f3c2-7c1e-7000-8000-00000000000a", secret)
    assert re.fullmatch(r"dtk_[a-z0-9-]+_[0-9A-Za-z]{49}", text)


@given(st.lists(st.binary(min_size=SECRET_BYTES, max_size=SECRET_BYTES), min_size=2, unique=True))
def test_no_two_secrets_look_alike(several: list[bytes]) -> None:
    assert all(new_secret(one) != new_secret(other) for one, other in pairwise(several))


def test_every_single_mistyped_character_is_noticed() -> None:
    text = key_text("0190-a", SECRET)

    for place in range(len(KEY_PREFIX), len(text)):
        wrong = "b" if text[place] == "a" else "a"
        assert parse_key(text[:place] + wrong + text[place + 1 :]) is None, place


@pytest.mark.parametrize(
    "text",
    [
        "",
        "dtk_",
        "dtk__",
        SECRET,
        f"dtk_{SECRET}",
        key_text("0190-a", SECRET)[:-1],
        key_text("0190-a", SECRET) + "\n",
    ],
)
def test_what_is_no_key(text: str) -> None:
    assert parse_key(text) is None


def test_what_is_kept_is_the_hash_alone() -> None:
    assert KEY.secret_hash == sha256(SECRET.encode()).digest()
    assert KEY.has_secret(SECRET)
    assert not KEY.has_secret(new_secret(bytes(SECRET_BYTES)))
    assert repr(KEY.secret_hash) not in repr(KEY)


def test_a_key_expires_at_its_instant() -> None:
    short = ApiKey(**{name: getattr(KEY, name) for name in KEY.__slots__} | {"expires_at": NOW + seconds(1)})

    assert not short.is_expired(NOW)
    assert short.is_expired(NOW + seconds(1))
    assert not KEY.is_expired(NOW + seconds(10**9))


def test_a_key_acts_for_its_tenant() -> None:
    assert KEY.principal() == Principal("acme", Role.WRITER, "0190-a")


@pytest.mark.parametrize("name", ["a\nb", "\x00", "\ud800", "a" * 101])
def test_what_a_key_may_not_be_named(name: str) -> None:
    with pytest.raises(ValueError, match="must"):
        check_key_name(name)


@pytest.mark.parametrize("name", ["", "the shop’s CI, 2026", "a" * 100])
def test_what_a_key_may_be_named(name: str) -> None:
    assert check_key_name(name) == name


@pytest.mark.parametrize("text", ["", "a\0", "A", "a b", "a" * 65, "a\n", "ä"])
def test_what_cannot_be_the_id_of_a_key(text: str) -> None:
    assert not is_key_id(text)
    assert is_key_id("0190f3c2-7c1e-7000-8000-00000000000a")
