"""The routes of a tenant's event webhook; what delivers the events is tested in tests/integration/outbox."""

from __future__ import annotations

from typing import Any

import pytest

from duetime.calls.webhook_publisher import WebhookPublisher
from duetime.domain.call_events import CallEventType
from duetime.domain.event_webhooks import delivery_of, events_namespace
from duetime.domain.namespaces import Namespace
from duetime.testing.contract.builders import failed, fired, leased
from duetime.testing.contract.steps import claim_shard
from tests.support.api import World
from tests.support.http import Api
from tests.support.outbox import make_event

PATH = "/v1/tenants/acme/event-webhook"
URL = "http://hooks.test/events"


def namespace(world: World) -> Namespace:
    found = world.store.catalogue.get_namespace(events_namespace("acme"))
    assert found is not None
    return found


def deliver(world: World, sequence: int, *, as_: Any = None, type_: CallEventType = CallEventType.SUBMITTED) -> str:
    """An event on its way, or at its end."""
    event = make_event("call-1", sequence, type_=type_)
    assert WebhookPublisher(world.store, clock=world.clock).publish([event]) == {}
    delivery_id = str(delivery_of(event))
    timer = world.store.timers.get(namespace(world), delivery_id, now=world.clock.now())
    assert timer is not None
    if as_ is not None:
        lease = claim_shard(world.store, timer.shard_id, "test", lease_seconds=10, now=world.clock.now())
        assert lease is not None
        outcome = as_(timer, at=world.clock.now())
        world.store.timers.record(leased([outcome], lease), now=world.clock.now())
        world.store.leases.release([lease], now=world.clock.now())
    return delivery_id


def test_a_webhook_is_set_read_changed_and_removed(api: Api) -> None:
    assert api.get(PATH).status == 404
    made = api.call("PUT", PATH, {"url": URL})
    assert (made.status, made.json()) == (201, {"url": URL, "eventTypes": None, "enabled": True, "revision": 2})
    other = {"url": f"{URL}/2", "eventTypes": ["ServiceCallFailed"], "enabled": False}
    assert (api.call("PUT", PATH, other).status, api.get(PATH).json()) == (200, other | {"revision": 3})
    again = api.call("PUT", PATH, {"url": URL}).json()
    assert again == made.json() | {"revision": 4}  # what is omitted has its default
    assert api.call("DELETE", PATH).status == 204
    assert (api.get(PATH).status, api.call("DELETE", PATH).json()["code"]) == (404, "event_webhook_not_found")


def test_a_webhook_is_changed_in_the_revision_that_was_read(api: Api) -> None:
    assert api.call("PUT", PATH, {"url": URL}, headers={"if-match": "*"}).code == "revision_mismatch"
    made = api.call("PUT", PATH, {"url": URL}, headers={"if-none-match": "*"})
    tag = made.headers["etag"]
    assert (made.status, api.get(PATH).headers["etag"], f'"{made.json()["revision"]}"') == (201, tag, tag)
    assert api.get(PATH, headers={"if-none-match": tag}).status == 304
    assert api.call("PUT", PATH, {"url": f"{URL}/2"}, headers={"if-none-match": "*"}).status == 412

    changed = api.call("PUT", PATH, {"url": f"{URL}/3"}, headers={"if-match": tag})
    assert (changed.status, changed.headers["etag"] != tag) == (200, True)
    for method in ("PUT", "DELETE"):
        body = {"url": URL} if method == "PUT" else None
        assert api.call(method, PATH, body, headers={"if-match": tag}).code == "revision_mismatch"
    assert api.get(PATH).json()["url"] == f"{URL}/3"
    assert api.call("DELETE", PATH, headers={"if-match": changed.headers["etag"]}).status == 204
    assert api.call("PUT", PATH, {"url": URL}, headers={"if-match": "*"}).status == 412
    assert api.get(PATH).status == 404


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "url"),
        ({"url": "ftp://hooks.test/"}, "url"),
        ({"url": "http://user:secret@hooks.test/"}, "url"),
        ({"url": URL, "eventTypes": []}, "eventTypes"),
        ({"url": URL, "eventTypes": ["ServiceCallFailed", "ServiceCallFailed"]}, "eventTypes"),
        ({"url": URL, "eventTypes": ["Other"]}, "eventTypes"),
        ({"url": URL, "eventTypes": [7]}, "eventTypes"),
        ({"url": URL, "eventTypes": "ServiceCallFailed"}, "eventTypes"),
        ({"url": URL, "eventTypes": 7}, "eventTypes"),
        ({"url": URL, "eventTypes": {"ServiceCallFailed": True}}, "eventTypes"),
        ({"url": URL, "eventTypes": [["ServiceCallFailed"]]}, "eventTypes"),
        ({"url": URL, "enabled": "yes"}, "enabled"),
        ({"url": URL, "retries": 3}, "retries"),
    ],
)
def test_a_bad_webhook_is_a_400_that_names_the_field_and_nothing_is_stored(
    api: Api, world: World, body: dict[str, Any], field: str
) -> None:
    answer = api.call("PUT", PATH, body)
    assert answer.status == 400
    assert [error["field"].partition("[")[0] for error in answer.json()["errors"]] == [field]
    assert world.store.catalogue.get_namespace(events_namespace("acme")) is None


def test_a_url_that_no_event_may_go_to_is_refused_at_once(api: Api) -> None:
    answer = api.call("PUT", PATH, {"url": "http://169.254.169.254/latest"})
    assert (answer.status, answer.json()["errors"][0]["field"]) == (400, "url")


def test_secrets_are_made_before_or_after_the_webhook_rotate_and_end(api: Api) -> None:
    first = api.call("POST", f"{PATH}/secrets", {})
    assert (first.status, first.headers["cache-control"]) == (201, "no-store")
    assert first.json()["secret"].startswith("whsec_")
    api.call("PUT", PATH, {"url": URL})
    second = api.call("POST", f"{PATH}/secrets", {"overlap": "1h"})
    assert second.json()["previous"]["id"] == first.json()["id"]
    assert api.call("POST", f"{PATH}/secrets", {}).json()["code"] == "secret_rotation_in_progress"
    listed = api.get(f"{PATH}/secrets")
    assert [secret["id"] for secret in listed.json()["items"]] == [first.json()["id"], second.json()["id"]]
    assert "whsec_" not in listed.text
    assert api.call("DELETE", f"{PATH}/secrets/{first.json()['id']}").status == 204
    assert api.call("DELETE", f"{PATH}/secrets/{first.json()['id']}").json()["code"] == "secret_not_found"
    assert api.get(PATH).status == 200


def test_a_removed_webhook_takes_its_secrets_along(api: Api) -> None:
    api.call("PUT", PATH, {"url": URL})
    api.call("POST", f"{PATH}/secrets", {})
    api.call("DELETE", PATH)
    assert api.get(f"{PATH}/secrets").json()["items"] == []


def test_before_there_is_a_webhook_everything_is_empty(api: Api) -> None:
    for path in ("secrets", "deliveries"):
        assert api.get(f"{PATH}/{path}").json() == {"items": [], "nextCursor": None}
    assert api.call("DELETE", f"{PATH}/secrets/x").status == 404
    assert api.get(f"{PATH}/deliveries/call-1.1/attempts").status == 404


def test_deliveries_are_listed_by_state_and_type_without_the_event(api: Api, world: World) -> None:
    api.call("PUT", PATH, {"url": f"{URL}?key=s3cret"})
    deliver(world, 1, as_=fired)
    deliver(world, 2, as_=failed, type_=CallEventType.FAILED)
    deliver(world, 3)
    by_state = {
        state: [item["id"] for item in api.all_pages(f"{PATH}/deliveries", state=state, limit="1")]
        for state in ("Fired", "Failed", "Scheduled")
    }
    assert by_state == {"Fired": ["call-1.1"], "Failed": ["call-1.2"], "Scheduled": ["call-1.3"]}
    (dead,) = api.all_pages(f"{PATH}/deliveries", type="ServiceCallFailed")
    assert (dead["serviceCallId"], dead["sequence"], dead["type"]) == ("call-1", 2, "ServiceCallFailed")
    assert (dead["failure"]["status"], dead["deliveredAt"]) == (503, None)
    assert "s3cret" not in api.get(f"{PATH}/deliveries").text
    assert api.get(f"{PATH}/deliveries", query={"state": "odd"}).status == 400


def test_dead_letters_are_redriven_by_id_and_by_filter(api: Api, world: World) -> None:
    api.call("PUT", PATH, {"url": URL})
    ids = [deliver(world, number, as_=failed) for number in (1, 2, 3)]
    answer = api.call("POST", f"{PATH}/redrive", {"ids": ids[:1]})
    assert (answer.status, answer.json()["redriven"]) == (200, 1)
    assert api.call("POST", f"{PATH}/redrive", {"reason": "HttpStatus"}).json()["redriven"] == 2
    assert [item["state"] for item in api.all_pages(f"{PATH}/deliveries")] == ["Scheduled"] * 3


def test_attempts_of_a_delivery_can_be_read(api: Api, world: World) -> None:
    api.call("PUT", PATH, {"url": URL})
    delivery_id = deliver(world, 1)
    assert api.get(f"{PATH}/deliveries/{delivery_id}/attempts").json() == {"items": [], "nextCursor": None}


def test_the_internal_namespace_is_none_for_the_routes_of_timers(api: Api, world: World) -> None:
    api.call("PUT", PATH, {"url": URL})
    deliver(world, 1)
    for path in ("", "/timers", "/timers/call-1.1", "/secrets"):
        assert api.get(f"/v1/namespaces/events@acme{path}").status == 404
    assert api.call("POST", "/v1/namespaces/events@acme/secrets", {}).status == 404
    assert api.call("POST", "/v1/namespaces/events@acme/redrive", {}).status == 404
