from __future__ import annotations

import logging
from typing import Any

import pytest

from duetime.api.http.authentication import KeyAuthenticator, principal_of_authorizer
from duetime.api.http.request import read_request
from duetime.domain.api_keys import SECRET_BYTES, ApiKey, hash_of, key_text, new_secret
from duetime.domain.errors import StoreUnavailable
from duetime.domain.principals import Principal, Role
from duetime.runtime.authorizer_function import Authorizer
from tests.support.clock import NOW, FakeClock

SECRET = new_secret(b"s" * SECRET_BYTES)
KEY = key_text("k1", SECRET)


class Keys:
    is_available = True

    def get_api_key(self, key_id: str) -> ApiKey | None:
        if not self.is_available:
            raise StoreUnavailable("away")
        if key_id != "k1":
            return None
        return ApiKey(key_id="k1", tenant_id="acme", role=Role.WRITER, secret_hash=hash_of(SECRET), created_at=NOW)


def event(**headers: str) -> dict[str, Any]:
    return {"version": "2.0", "type": "REQUEST", "headers": headers, "requestContext": {}}


@pytest.fixture
def authorizer() -> Authorizer:
    return Authorizer(KeyAuthenticator(Keys(), FakeClock(), cache_seconds=0))


def test_a_good_key_is_let_in_with_what_the_functions_read(authorizer: Authorizer) -> None:
    answer = authorizer(event(authorization=f"Bearer {KEY}"), None)

    assert answer["isAuthorized"] is True
    request = read_request(
        {
            "rawPath": "/",
            "requestContext": {"http": {"method": "GET"}, "authorizer": {"lambda": answer["context"]}},
        },
        new_id=lambda: "r1",
    )
    assert principal_of_authorizer(request) == Principal("acme", Role.WRITER, "k1")


@pytest.mark.parametrize("value", ["", KEY, f"Bearer {KEY[:-1]}", f"Bearer {key_text('k2', SECRET)}", "Basic YTpi"])
def test_others_are_not(authorizer: Authorizer, value: str) -> None:
    assert authorizer(event(authorization=value), None) == {"isAuthorized": False}
    assert authorizer(event(), None) == {"isAuthorized": False}


def test_a_store_that_does_not_answer_is_no_refusal_that_the_gateway_would_keep(
    caplog: pytest.LogCaptureFixture,
) -> None:
    keys = Keys()
    keys.is_available = False
    caplog.set_level(logging.DEBUG)

    with pytest.raises(StoreUnavailable):
        Authorizer(KeyAuthenticator(keys, FakeClock(), cache_seconds=0))(event(authorization=f"Bearer {KEY}"), None)

    assert [record.action for record in caplog.records] == ["store.unavailable"]  # type: ignore[attr-defined]
    assert SECRET not in caplog.text
