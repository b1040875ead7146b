"""Signing secrets through the handler: created, rotated, listed, ended, encrypted, and never shown again."""

from __future__ import annotations

import logging
from base64 import b64encode
from typing import Any

import pytest

from duetime.api.handler import build_handler
from duetime.delivery.encryption import SecretUnavailable
from duetime.domain.namespaces import NAMESPACE_SECONDS
from duetime.domain.secrets import parse_secret
from duetime.domain.times import format_instant
from duetime.engine.namespace_cache import NamespaceCache
from duetime.testing.contract.builders import seconds
from tests.support.api import ContendedStore, World, context_for
from tests.support.clock import NOW
from tests.support.http import Answer, Api

PATH = "/v1/namespaces/default/secrets"
DAY = 86_400
OWN = "whsec_" + b64encode(bytes(range(24))).decode()


def create(api: Api, body: Any = None) -> dict[str, Any]:
    answer = api.call("POST", PATH, body)
    assert answer.status == 201, answer
    created: dict[str, Any] = answer.json()
    return created


def listed(api: Api) -> dict[str, str | None]:
    return {item["id"]: item["expiresAt"] for item in api.list(PATH).json()["items"]}


def keys(world: World) -> list[bytes]:
    """What callbacks are signed with now."""
    namespace = world.store.catalogue.get_namespace("default")
    assert namespace is not None
    assert world.secret_box is not None
    now = world.clock.now()
    return [
        world.secret_box.decrypt(secret.ciphertext, context="default")
        for secret in namespace.secrets
        if secret.is_valid(now)
    ]


def at(offset_seconds: float) -> str:
    return format_instant(NOW + seconds(offset_seconds))


def test_a_namespace_has_none_to_begin_with(api: Api) -> None:
    assert api.list(PATH).json() == {"items": [], "nextCursor": None}


def test_one_is_made_shown_once_and_stored_encrypted(world: World) -> None:
    answer = world.api.call("POST", PATH)

    assert (answer.status, answer.headers["cache-control"]) == (201, "no-store")
    created = answer.json()
    key = parse_secret(created["secret"])
    assert len(key) == 32
    assert {name: created[name] for name in ("createdAt", "expiresAt", "previous")} == {
        "createdAt": format_instant(NOW),
        "expiresAt": None,
        "previous": None,
    }
    assert keys(world) == [key]
    namespace = world.store.catalogue.get_namespace("default")
    assert namespace is not None
    assert key not in namespace.secrets[0].ciphertext
    shown = world.api.list(PATH)
    assert shown.headers["cache-control"] == "no-cache"
    assert shown.json()["items"] == [{name: created[name] for name in ("id", "createdAt", "expiresAt")}]
    assert created["secret"] not in world.api.get("/v1/namespaces/default").text


def test_each_is_another(api: Api) -> None:
    assert create(api)["secret"] != create(api)["secret"]


def test_one_can_be_brought(world: World) -> None:
    assert create(world.api, {"secret": OWN})["secret"] == OWN
    assert keys(world) == [bytes(range(24))]


@pytest.mark.parametrize(
    "secret",
    [
        "",
        "whsec_",
        OWN.removeprefix("whsec_"),
        "WHSEC_" + OWN.removeprefix("whsec_"),
        "whsec_" + b64encode(b"x" * 23).decode(),
        "whsec_" + b64encode(b"x" * 65).decode(),
        OWN + "\n",
        OWN.replace("A", "-"),
        OWN[:-1],
        "whsec_é" + OWN,
        7,
        ["whsec_"],
    ],
)
def test_a_bad_one_is_refused_and_not_quoted(api: Api, secret: Any) -> None:
    answer = api.call("POST", PATH, {"secret": secret})

    assert (answer.status, list(answer.faults)) == (400, ["secret"])
    assert not isinstance(secret, str) or len(secret) < 10 or secret[6:] not in answer.text
    assert listed(api) == {}


@pytest.mark.parametrize("overlap", ["", "-1s", -1, "soon", "91d", True, [], float("1e300")])
def test_a_bad_overlap_is_refused(api: Api, overlap: Any) -> None:
    assert api.call("POST", PATH, {"overlap": overlap}).faults.keys() == {"overlap"}


@pytest.mark.parametrize("body", ['{"secret": "whsec_', '{"key": "x"}', "[]", '{"secret": "' + "x" * 5000 + '"}'])
def test_a_bad_body_is_refused(api: Api, body: str) -> None:
    assert api.call("POST", PATH, body).status in (400, 413)
    assert listed(api) == {}


class TestRotation:
    def test_the_one_before_stays_valid_for_a_day(self, world: World) -> None:
        first, second = create(world.api), create(world.api)

        assert second["previous"] == {"id": first["id"], "createdAt": first["createdAt"], "expiresAt": at(DAY)}
        assert listed(world.api) == {first["id"]: at(DAY), second["id"]: None}
        assert keys(world) == [parse_secret(first["secret"]), parse_secret(second["secret"])]
        world.clock.advance(DAY - 0.001)
        assert len(keys(world)) == 2
        world.clock.advance(0.001)
        assert keys(world) == [parse_secret(second["secret"])]
        assert listed(world.api) == {second["id"]: None}

    @pytest.mark.parametrize(("overlap", "lasts"), [("2h", 7200), (90, 90), ("PT1M", 60), ("90d", 90 * DAY)])
    def test_it_takes_as_long_as_asked(self, api: Api, overlap: Any, lasts: float) -> None:
        create(api)
        assert create(api, {"overlap": overlap})["previous"]["expiresAt"] == at(lasts)

    def test_without_an_overlap_the_one_before_ends_at_once(self, world: World) -> None:
        create(world.api)
        second = create(world.api, {"overlap": "0s"})

        assert second["previous"] is None
        assert keys(world) == [parse_secret(second["secret"])]

    def test_two_are_the_most(self, world: World) -> None:
        first, second = create(world.api), create(world.api)

        answer = world.api.call("POST", PATH)

        assert (answer.status, answer.code) == (409, "secret_rotation_in_progress")
        assert f"{first['id']} until {at(DAY)}" in answer.json()["detail"]
        assert listed(world.api).keys() == {first["id"], second["id"]}

    def test_the_next_one_begins_after_the_end_of_this_one(self, world: World) -> None:
        create(world.api)
        second = create(world.api)
        world.clock.advance(DAY)

        third = create(world.api)

        assert third["previous"]["id"] == second["id"]
        namespace = world.store.catalogue.get_namespace("default")
        assert namespace is not None
        # What has expired was removed by this change.
        assert [secret.secret_id for secret in namespace.secrets] == [second["id"], third["id"]]

    def test_deleting_the_older_one_ends_it(self, world: World) -> None:
        first, second = create(world.api), create(world.api)

        assert world.api.call("DELETE", f"{PATH}/{first['id']}").status == 204

        assert keys(world) == [parse_secret(second["secret"])]
        assert create(world.api)["previous"]["id"] == second["id"]

    def test_deleting_the_newer_one_undoes_it(self, world: World) -> None:
        first, second = create(world.api), create(world.api)

        assert world.api.call("DELETE", f"{PATH}/{second['id']}").status == 204

        assert listed(world.api) == {first["id"]: None}
        world.clock.advance(2 * DAY)
        assert keys(world) == [parse_secret(first["secret"])]


def test_after_the_last_is_deleted_there_is_none(world: World) -> None:
    created = create(world.api)

    answer = world.api.call("DELETE", f"{PATH}/{created['id']}")

    assert (answer.status, answer.text) == (204, "")
    assert keys(world) == []
    again = world.api.call("DELETE", f"{PATH}/{created['id']}")
    assert (again.status, again.code) == (404, "secret_not_found")


def test_an_expired_one_cannot_be_deleted(world: World) -> None:
    first, _ = create(world.api), create(world.api)
    world.clock.advance(DAY)

    assert world.api.call("DELETE", f"{PATH}/{first['id']}").code == "secret_not_found"


@pytest.mark.parametrize(("method", "path"), [("POST", "secrets"), ("GET", "secrets"), ("DELETE", "secrets/x")])
@pytest.mark.parametrize("name", ["nobody", "UPPER"])
def test_without_a_namespace_there_are_no_secrets(api: Api, method: str, path: str, name: str) -> None:
    answer = api.call(method, f"/v1/namespaces/{name}/{path}")
    assert (answer.status, answer.code) == (404, "namespace_not_found")


def test_secrets_and_settings_leave_each_other_alone(world: World) -> None:
    world.api.call("PUT", "/v1/namespaces/default", {"maxInFlight": 7})
    created = create(world.api)

    assert world.api.get("/v1/namespaces/default").json()["maxInFlight"] == 7
    world.api.call("PUT", "/v1/namespaces/default", {"maxInFlight": None})
    assert keys(world) == [parse_secret(created["secret"])]


class BrokenBox:
    def encrypt(self, plain: bytes, *, context: str) -> bytes:
        raise SecretUnavailable("the key service does not answer")

    def decrypt(self, ciphertext: bytes, *, context: str) -> bytes:
        raise AssertionError("nobody asked for it")


@pytest.mark.parametrize("box", [None, BrokenBox()])
def test_without_a_key_none_is_created_and_nothing_stored(world: World, box: Any) -> None:
    api = Api(build_handler(context_for(world.store, world.clock, secret_box=box)))

    answer: Answer = api.call("POST", PATH, {"secret": OWN})

    assert (answer.status, answer.code) == (503, "secret_unavailable")
    assert OWN not in answer.text
    assert listed(api) == {}


class CountingBox:
    def __init__(self) -> None:
        self.calls = 0

    def encrypt(self, plain: bytes, *, context: str) -> bytes:
        self.calls += 1
        return b"ciphertext"

    def decrypt(self, ciphertext: bytes, *, context: str) -> bytes:
        raise AssertionError("nobody asked for it")


def test_a_key_service_is_asked_once_and_only_for_what_can_be_created(world: World) -> None:
    box = CountingBox()
    contended = ContendedStore(world, 2)
    api = Api(build_handler(context_for(contended, world.clock, secret_box=box)))

    create(api)
    create(api)
    assert api.call("POST", PATH).code == "secret_rotation_in_progress"
    assert api.call("POST", "/v1/namespaces/nobody/secrets").status == 404
    assert api.call("POST", PATH, {"secret": "x"}).status == 400

    assert box.calls == 2
    assert world.api.get("/v1/namespaces/default").json()["rateLimit"] == 2  # what the other ones changed


def test_no_secret_is_ever_logged(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    broken = Api(build_handler(context_for(world.store, world.clock, secret_box=BrokenBox())))

    made = create(world.api)["secret"]
    create(world.api, {"secret": OWN})
    broken.call("POST", PATH, {"secret": OWN})
    world.api.call("POST", PATH, {"secret": OWN[:-1]})
    world.api.call("POST", PATH, {"secret": OWN, "unknown": OWN})
    world.api.call("POST", PATH, f'{{"secret": "{OWN}", ')

    texts = [f"{record.getMessage()} {record.__dict__} {record.exc_text}" for record in caplog.records]
    assert texts
    assert not any(secret.removeprefix("whsec_")[:12] in text for secret in (made, OWN) for text in texts)


def test_a_poller_ends_a_secret_by_time(world: World) -> None:
    """It has known both for long, and nothing of the namespace changes any more."""
    cache = NamespaceCache(world.store.catalogue, clock=world.clock, secret_box=world.secret_box)

    def signatures() -> list[str]:
        cache.load({"default"})
        view = cache.get("default")
        assert view is not None
        assert view.signer is not None
        return view.signer.signature("id", 0, b"").split()

    create(world.api, {"secret": OWN})
    (first,) = signatures()
    create(world.api, {"overlap": "30s"})
    world.clock.advance(NAMESPACE_SECONDS)
    second, was_first = sorted(signatures(), key=lambda each: each == first)
    assert was_first == first
    for _ in range(2):
        world.clock.advance(NAMESPACE_SECONDS)
    assert signatures() == [second]
