"""What the API says of namespaces, keys and timers that cannot be read."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from duetime.api.handler import build_handler
from duetime.api.http.authentication import KeyAuthenticator
from duetime.domain.api_keys import SECRET_BYTES, ApiKey, hash_of, key_text, new_secret
from duetime.domain.event_webhooks import EventWebhook, events_namespace
from duetime.domain.namespaces import NamespaceSettings
from duetime.domain.principals import Role
from duetime.stores.port.timers import PutMode
from duetime.testing.contract.builders import make_timer
from tests.support.api import World, context_for
from tests.support.clock import NOW
from tests.support.http import Api
from tests.support.unreadable import key_of_a_later_role, make_unreadable, unreadable_namespace

SECRET = new_secret(b"s" * SECRET_BYTES)


def test_a_list_shows_an_unreadable_namespace_among_the_others(world: World) -> None:
    bad = unreadable_namespace(world.store, "bad")

    answer = world.api.call("GET", "/v1/namespaces")

    assert answer.status == 200
    shown = {each["name"]: each for each in answer.json()["items"]}
    assert shown["default"]["unreadable"] is None
    assert shown["bad"]["unreadable"] == bad.unreadable
    assert (shown["bad"]["maxInFlight"], shown["bad"]["numShards"]) == (None, 4)


def test_an_unreadable_namespace_itself_is_a_clear_problem_and_is_not_changed(world: World) -> None:
    bad = unreadable_namespace(world.store, "bad")

    answers = [
        world.api.call("GET", "/v1/namespaces/bad"),
        world.api.call("PUT", "/v1/namespaces/bad", {"maxInFlight": 3}),
        world.api.call("GET", "/v1/namespaces/bad/secrets"),
        world.api.call("POST", "/v1/namespaces/bad/secrets", {}),
    ]

    assert {(answer.status, answer.json()["code"]) for answer in answers} == {(409, "namespace_unreadable")}
    assert "a newer version" in answers[0].json()["detail"]
    assert world.store.catalogue.get_namespace("bad") == bad


def test_the_timers_of_an_unreadable_namespace_are_taken_and_shown(world: World) -> None:
    unreadable_namespace(world.store, "bad")

    created = world.api.call(
        "POST", "/v1/namespaces/bad/timers", {"id": "t", "delay": "1h", "callbackUrl": "https://x.example/"}
    )

    assert created.status == 201
    assert world.api.call("GET", "/v1/namespaces/bad/timers/t").status == 200
    assert [each["id"] for each in world.api.call("GET", "/v1/namespaces/bad/timers").json()["items"]] == ["t"]


def test_a_damaged_timer_is_shown_as_unreadable_in_json_that_can_be_read(world: World) -> None:
    timers = [
        make_timer(world.namespace, "payload", payload_json='{"order":'),
        make_timer(world.namespace, "headers", headers_json='"],'),
        replace(make_timer(world.namespace, "attempts"), attempts=-3),
    ]
    world.store.timers.put(timers, mode=PutMode.CREATE, now=NOW)

    listed = world.api.call("GET", "/v1/namespaces/default/timers")
    alone = world.api.call("GET", "/v1/namespaces/default/timers/payload")

    assert (listed.status, alone.status) == (200, 200)
    assert [each["failure"]["reason"] for each in json.loads(listed.text)["items"]] == ["Unreadable"] * 3
    assert (alone.json()["payload"], alone.json()["failure"]["message"]) == (
        None,
        "the stored timer cannot be read: payload_json is damaged",
    )


def test_a_key_of_a_role_that_is_not_known_is_listed_and_lets_nobody_in(world: World) -> None:
    store, clock = world.store, world.clock
    key_of_a_later_role(store, "later", "acme", secret=SECRET)
    admin = ApiKey(key_id="admin", tenant_id="acme", role=Role.ADMIN, secret_hash=hash_of(SECRET), created_at=NOW)
    store.catalogue.create_api_key(admin)
    authenticator = KeyAuthenticator(store.catalogue, clock, cache_seconds=5)
    handler = build_handler(
        replace(
            context_for(store, clock),
            authenticate=lambda request: authenticator.authenticate(request.header("authorization")),
        )
    )

    listed = Api(handler, key=key_text("admin", SECRET)).call("GET", "/v1/tenants/acme/api-keys")
    refused = Api(handler, key=key_text("later", SECRET)).call("GET", "/v1/principal")

    assert listed.status == 200
    items: list[dict[str, Any]] = listed.json()["items"]
    assert [(each["id"], each["role"], each["unreadable"] is None) for each in items] == [
        ("admin", "admin", True),
        ("later", None, False),
    ]
    assert (refused.status, refused.json()["code"]) == (401, "unauthenticated")


def test_a_webhook_for_types_of_a_newer_version_is_shown_as_it_is(world: World) -> None:
    created, _ = world.store.catalogue.create_namespace(
        events_namespace("default"), num_shards=2, dedicated=False, now=NOW, tenant_id="default"
    )
    webhook = EventWebhook(url="https://x.example/", event_types=("ServiceCallPaused", "ServiceCallFailed"))
    assert world.store.catalogue.update_namespace(
        replace(created, settings=NamespaceSettings(webhook=webhook)), if_revision=1, now=NOW
    )

    shown = world.api.call("GET", "/v1/tenants/default/event-webhook")

    assert shown.status == 200
    assert shown.json()["eventTypes"] == ["ServiceCallPaused", "ServiceCallFailed"]


def test_a_webhook_that_cannot_be_read_is_no_webhook_that_is_not_there(world: World) -> None:
    created, _ = world.store.catalogue.create_namespace(
        events_namespace("default"), num_shards=2, dedicated=False, now=NOW, tenant_id="default"
    )
    make_unreadable(world.store, created)

    answer = world.api.call("GET", "/v1/tenants/default/event-webhook")

    assert (answer.status, answer.json()["code"]) == (409, "namespace_unreadable")
