"""Settings of a namespace through the handler: what is kept, shown, refused, and raced for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from duetime.api.handler import build_handler
from duetime.domain.namespaces import NamespaceSettings
from tests.support.api import ContendedStore, World, context_for
from tests.support.clock import NOW
from tests.support.http import Answer, Api

PATH = "/v1/namespaces/default"
POLICY = '{"maxAttempts":  3, "backoffMultiplier": 1.50}'
SETTINGS = f'{{"retryPolicy": {POLICY}, "maxInFlight": 7, "rateLimit": 2.5}}'


def put(api: Api, body: Any = None, **headers: str) -> Answer:
    return api.call("PUT", PATH, body, headers={name.replace("_", "-"): value for name, value in headers.items()})


def test_settings_are_kept_and_shown_as_they_were_given(world: World) -> None:
    answer = put(world.api, SETTINGS)

    assert (answer.status, answer.headers["etag"]) == (200, '"2"')
    assert f'"retryPolicy":{POLICY}' in answer.text
    assert (answer.json()["maxInFlight"], answer.json()["rateLimit"]) == (7, 2.5)
    assert answer.json() == world.api.get(PATH).json() == world.api.list("/v1/namespaces").json()["items"][0]
    stored = world.store.catalogue.get_namespace("default")
    assert stored is not None
    assert stored.settings == NamespaceSettings(retry_policy_json=POLICY, max_in_flight=7, rate_limit_per_second=2.5)


def test_a_new_namespace_can_have_settings_from_the_start(api: Api) -> None:
    answer = api.call("PUT", "/v1/namespaces/orders", {"numShards": 2, "maxInFlight": 3})

    assert (answer.status, answer.headers["location"]) == (201, "/v1/namespaces/orders")
    assert (answer.json()["numShards"], answer.json()["maxInFlight"]) == (2, 3)


def test_what_is_omitted_stays_and_null_clears(api: Api) -> None:
    put(api, SETTINGS)

    changed = put(api, {"maxInFlight": None, "rateLimit": 10}).json()

    assert (changed["maxInFlight"], changed["rateLimit"], changed["retryPolicy"]["maxAttempts"]) == (None, 10, 3)
    cleared = put(api, {"rateLimit": None, "retryPolicy": None}).json()
    assert (cleared["maxInFlight"], cleared["rateLimit"], cleared["retryPolicy"]) == (None, None, None)


def test_setting_what_is_set_is_no_change(api: Api) -> None:
    put(api, SETTINGS)

    assert put(api, SETTINGS).json()["revision"] == 2
    assert put(api).json()["revision"] == 2


def test_settings_are_shown_fresh(world: World) -> None:
    assert world.api.list(f"{PATH}/timers").status == 200  # the namespace is known to the handler now
    wanted = replace(world.namespace, settings=NamespaceSettings(max_in_flight=9))
    world.store.catalogue.update_namespace(wanted, if_revision=1, now=NOW)

    assert world.api.get(PATH).json()["maxInFlight"] == 9


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"maxInFlight": 0}, "maxInFlight"),
        ({"maxInFlight": 100_001}, "maxInFlight"),
        ({"maxInFlight": 1.5}, "maxInFlight"),
        ({"maxInFlight": "7"}, "maxInFlight"),
        ({"maxInFlight": True}, "maxInFlight"),
        ({"rateLimit": 0}, "rateLimit"),
        ({"rateLimit": 0.0001}, "rateLimit"),
        ({"rateLimit": -1}, "rateLimit"),
        ({"rateLimit": 100_001}, "rateLimit"),
        ({"rateLimit": True}, "rateLimit"),
        ('{"rateLimit": 1e400}', "rateLimit"),
        ({"rateLimit": "5"}, "rateLimit"),
        ({"retryPolicy": {"maxAttempts": 0}}, "retryPolicy.maxAttempts"),
        ({"retryPolicy": {"attempts": 3}}, "retryPolicy.attempts"),
        ({"retryPolicy": []}, "retryPolicy"),
        ('{"maxInFlight": 1, "maxInFlight": 2}', "maxInFlight"),
        ({"max_in_flight": 1}, "max_in_flight"),
    ],
)
def test_a_bad_setting_is_refused_by_its_name_and_changes_nothing(api: Api, body: Any, field: str) -> None:
    answer = put(api, body)

    assert (answer.status, list(answer.faults)) == (400, [field])
    assert api.get(PATH).json()["revision"] == 1


def test_settings_of_a_namespace_with_other_shards_are_not_changed(api: Api) -> None:
    assert put(api, {"numShards": 5, "maxInFlight": 7}).code == "namespace_conflict"
    assert api.get(PATH).json()["maxInFlight"] is None


class TestConditions:
    def test_if_match_holds_for_the_revision_that_it_names(self, api: Api) -> None:
        assert put(api, {"maxInFlight": 1}, if_match='"1"').status == 200
        assert put(api, {"maxInFlight": 2}, if_match='"1"').code == "revision_mismatch"
        assert put(api, {"maxInFlight": 2}, if_match='"7", "2"').status == 200
        assert put(api, {"maxInFlight": 3}, if_match="*").json()["maxInFlight"] == 3

    def test_if_match_is_judged_without_a_change_too(self, api: Api) -> None:
        assert put(api, if_match='"1"').status == 200
        assert put(api, if_match='"2"').status == 412

    def test_if_match_makes_no_namespace(self, api: Api) -> None:
        for tag in ('"1"', "*"):
            answer = api.call("PUT", "/v1/namespaces/orders", headers={"If-Match": tag})
            assert (answer.status, answer.code) == (412, "revision_mismatch")
        assert api.get("/v1/namespaces/orders").status == 404

    def test_a_malformed_tag_is_refused(self, api: Api) -> None:
        assert put(api, if_match="1").faults.keys() == {"If-Match"}

    def test_a_known_revision_is_not_sent_again(self, api: Api) -> None:
        answer = api.get(PATH, headers={"If-None-Match": '"1"'})
        assert (answer.status, answer.text, answer.headers["etag"]) == (304, "", '"1"')
        assert api.get(PATH, headers={"If-None-Match": '"2"'}).status == 200


def contended(world: World, times: int) -> Api:
    return Api(build_handler(context_for(ContendedStore(world, times), world.clock)))


def test_a_change_that_met_another_is_made_on_top_of_it(world: World) -> None:
    answer = put(contended(world, 3), {"maxInFlight": 7})

    assert (answer.status, answer.json()["revision"]) == (200, 5)
    assert (answer.json()["maxInFlight"], answer.json()["rateLimit"]) == (7, 3)


def test_a_change_that_always_meets_another_is_given_up(world: World) -> None:
    answer = put(contended(world, 100), {"maxInFlight": 7})

    assert (answer.status, answer.code) == (503, "store_unavailable")
    assert "retry-after" in answer.headers
    assert world.api.get(PATH).json()["maxInFlight"] is None


def test_a_condition_is_judged_again_after_another_change(world: World) -> None:
    assert put(contended(world, 1), {"maxInFlight": 7}, if_match='"1"').status == 412
    assert world.api.get(PATH).json()["maxInFlight"] is None
