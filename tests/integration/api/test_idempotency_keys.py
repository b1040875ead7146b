"""``Idempotency-Key``: whatever a client repeats is carried out once, and answered as the first time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from duetime.api.handler import build_handler
from duetime.api.http import idempotency
from duetime.api.http.idempotency import CLAIM_SECONDS
from duetime.api.http.route import Keeps
from duetime.domain.errors import StoreUnavailable
from duetime.domain.ids import is_uuid
from duetime.domain.principals import Role
from tests.support.api import World, context_for
from tests.support.call_api import CallWorld
from tests.support.http import Answer, Api
from tests.support.parts import Intercepted, Overlay
from tests.support.stores import memory_store
from tests.support.tenants import OPERATIONS, TenantWorld, everything_of, make_tenant_world

DAY = 86_400
GOOD: dict[str, Any] = {"delay": "1h", "callbackUrl": "http://receiver.test/callback"}
KEYED = sorted(operation_id for operation_id, route in OPERATIONS.items() if route.is_keyed)


@pytest.fixture
def tenants() -> Iterator[TenantWorld]:
    with memory_store() as store:
        yield make_tenant_world(store)


def create(api: Api, body: Mapping[str, Any] = GOOD, key: str = "k1") -> Answer:
    return api.call("POST", api.timers, body, headers={"idempotency-key": key})


def same(one: Answer, other: Answer) -> bool:
    """But for what tells that it is a repeat."""
    marks = {"idempotent-replayed", "x-request-id"}
    heads = [{name: value for name, value in each.headers.items() if name not in marks} for each in (one, other)]
    return (one.status, one.text, heads[0]) == (other.status, other.text, heads[1])


@pytest.mark.parametrize("operation_id", KEYED)
def test_every_write_is_carried_out_once(tenants: TenantWorld, operation_id: str) -> None:
    headers = {"idempotency-key": "same"}
    if operation_id == "submitServiceCall":
        headers = {"idempotency-key": "new"}  # the sample has this one in its body
    if operation_id == "rerunServiceCall":
        headers = {"idempotency-key": "rerun"}
    tenants.clock.advance(1)
    first = tenants.globex.request(operation_id, headers=headers)
    assert "idempotent-replayed" not in first.headers
    after = everything_of(tenants)
    tenants.clock.advance(1)

    again = tenants.globex.request(operation_id, headers=headers)

    assert everything_of(tenants) == after
    if first.status >= 400:
        assert again.status == first.status
    elif OPERATIONS[operation_id].keeps is Keeps.FACT:
        assert (again.status, again.code) == (409, "secret_shown_once")
    else:
        assert again.headers["idempotent-replayed"] == "true"
        assert OPERATIONS[operation_id].keeps is Keeps.RESOURCE or same(again, first)


def test_an_id_is_made_once(world: World) -> None:
    first, again = create(world.api), create(world.api)
    assert (first.status, same(first, again)) == (201, True)
    assert is_uuid(first.json()["id"])
    assert len(world.stored) == 1
    assert create(world.api, key="k2").json()["id"] != first.json()["id"]


def test_a_repeat_tells_the_first_answer_whatever_came_since(world: World) -> None:
    first = create(world.api, GOOD | {"id": "t1"})
    world.api.delete("t1")
    again = create(world.api, GOOD | {"id": "t1"})
    assert (again.json(), again.headers["location"]) == (first.json(), first.headers["location"])
    assert world.api.read("t1").status == 404


def test_a_timer_is_fired_once(world: World) -> None:
    world.api.put("t1", GOOD)
    for _ in range(2):
        assert world.api.call("POST", f"{world.api.timers}/t1/fire", headers={"idempotency-key": "f"}).status == 200
        world.clock.advance(1)
    assert world.timer("t1").revision == 2


@pytest.mark.parametrize("other", [{"body": GOOD | {"payload": 1}}, {"headers": {"if-match": '"1"'}}])
def test_a_key_is_for_one_request(world: World, other: dict[str, Any]) -> None:
    path = f"{world.api.timers}/t1"
    headers = {"idempotency-key": "k"}
    assert world.api.call("PUT", path, GOOD, headers=headers).status == 201
    changed = {"body": GOOD} | other | {"headers": headers | other.get("headers", {})}
    answer = world.api.call("PUT", path, **changed)
    assert (answer.status, answer.code) == (409, "idempotency_key_reused")
    assert world.timer("t1").revision == 1


def test_a_key_is_for_one_route_and_one_tenant(tenants: TenantWorld) -> None:
    headers = {"idempotency-key": "same"}
    for tenant in (tenants.acme, tenants.globex):
        api = tenant.api()
        for timer_id in ("a", "b"):
            assert api.call("PUT", f"{api.timers}/{timer_id}", GOOD, headers=headers).status == 201
        assert api.call("PATCH", f"{api.timers}/a", {"tags": ["x"]}, headers=headers).status == 200
    # Keys of one tenant share it: they are changed, and the work goes on.
    again = tenants.acme.api(Role.WRITER)
    assert again.call("PUT", f"{again.timers}/a", GOOD, headers=headers).headers["idempotent-replayed"] == "true"


def test_a_key_is_kept_for_a_day(world: World) -> None:
    first = create(world.api)
    world.clock.advance(DAY - 0.001)
    assert create(world.api).json() == first.json()
    world.clock.advance(0.001)
    assert create(world.api).json()["id"] != first.json()["id"]


def test_a_refusal_leaves_the_key_free(world: World) -> None:
    assert create(world.api, GOOD | {"callbackUrl": 7}).status == 400
    assert create(world.api, GOOD | {"id": "t1"}).status == 201
    path = f"{world.api.timers}/none/fire"
    assert world.api.call("POST", path, headers={"idempotency-key": "f"}).status == 404
    world.api.put("none", GOOD)
    assert world.api.call("POST", path, headers={"idempotency-key": "f"}).status == 200


@pytest.mark.parametrize("key", ["", " ", "ü", "x" * 256, "a\x7fb", '""'])
def test_a_malformed_key_is_refused(world: World, key: str) -> None:
    answer = create(world.api, key=key)
    assert (answer.status, list(answer.faults)) == (400, ["Idempotency-Key"])
    assert world.stored == []


def test_the_quotes_of_a_structured_string_are_not_the_key(world: World) -> None:
    first = create(world.api, key="x" * 255)
    assert create(world.api, key='"' + "x" * 255 + '"').json() == first.json()


def test_reads_and_removals_take_no_notice(world: World) -> None:
    world.api.put("t1", GOOD)
    headers = {"idempotency-key": "k"}
    assert world.api.read("t1", headers=headers).status == 200
    assert [world.api.delete("t1", headers=headers).status for _ in range(2)] == [200, 404]


def test_without_a_key_nothing_is_kept(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world.store.catalogue, "put_idempotency_record", None)
    assert world.api.create(GOOD).status == 201


class TestWhenSomethingGoesWrong:
    """Of the store: ``fails`` says before or after which operation it does, once."""

    def api(self, world: World, *, after: str | None = None, before: str | None = None) -> Api:
        has_failed = False

        def operate(name: str, operation: Callable[..., Any], *arguments: Any, **more: Any) -> Any:
            nonlocal has_failed
            if name not in (after, before) or has_failed:
                return operation(*arguments, **more)
            has_failed = True
            if name == after:
                operation(*arguments, **more)
            raise StoreUnavailable("not now")

        store = Intercepted(world.store, operate)
        return Api(build_handler(context_for(store, world.clock, secret_box=world.secret_box)))

    def test_what_failed_before_its_effect_is_carried_out_next(self, world: World) -> None:
        api = self.api(world, before="timers.put")
        assert create(api).status == 503
        assert create(api).status == 201

    def test_what_failed_after_its_effect_meets_its_own_work(self, world: World) -> None:
        api = self.api(world, after="timers.put")
        assert create(api).status == 503
        (timer,) = world.api.all_pages(None)
        world.clock.advance(1)
        again = create(api)
        assert (again.status, again.json()["id"]) == (200, timer["id"])
        assert [each["id"] for each in world.api.all_pages(None)] == [timer["id"]]

    def test_a_batch_meets_its_own_work(self, world: World) -> None:
        api = self.api(world, after="timers.put")
        body, headers = {"timers": [GOOD, GOOD | {"id": "mine"}, GOOD]}, {"idempotency-key": "b"}
        assert api.call("POST", f"{api.timers}/batch", body, headers=headers).status == 503
        again = api.call("POST", f"{api.timers}/batch", body, headers=headers).json()["items"]
        assert [each["status"] for each in again] == [200, 200, 200]
        assert {each["id"] for each in again} == {each["id"] for each in world.api.all_pages(None)}

    @pytest.mark.parametrize(
        ("path", "body", "operation"),
        [
            ("/v1/tenants/default/api-keys", {"role": "reader"}, "catalogue.create_api_key"),
            ("/v1/namespaces/default/secrets", {}, "catalogue.update_namespace"),
        ],
    )
    def test_a_secret_that_was_made_and_not_shown_is_not_made_again(
        self, world: World, path: str, body: dict[str, str], operation: str
    ) -> None:
        api = self.api(world, after=operation)
        statuses = [api.call("POST", path, body, headers={"idempotency-key": "s"}).status for _ in range(2)]
        assert statuses == [503, 409]
        assert api.call("POST", path, body, headers={"idempotency-key": "s"}).code == "secret_shown_once"
        assert len(api.all_pages(path)) == 1

    def test_while_the_first_is_carried_out_others_wait(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        seen: list[Answer] = []
        put = world.store.timers.put

        def put_slowly(*arguments: Any, **more: Any) -> Any:
            for seconds in (0, 4):
                world.clock.advance(seconds)
                seen.append(create(world.api))
            return put(*arguments, **more)

        monkeypatch.setattr(world.store.timers, "put", put_slowly)
        assert create(world.api).status == 201
        assert [(each.status, each.code, each.headers["retry-after"]) for each in seen] == [
            (409, "idempotency_key_in_use", "1"),
            (409, "idempotency_key_in_use", "4"),
        ]

    def test_a_claim_whose_process_died_lapses(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        class Killed(BaseException):
            """As ``kill -9`` between the effect and the answer."""

        put = world.store.timers.put

        def put_and_die(*arguments: Any, **more: Any) -> Any:
            put(*arguments, **more)
            raise Killed

        monkeypatch.setattr(world.store.timers, "put", put_and_die)
        with pytest.raises(Killed):
            create(world.api)
        monkeypatch.setattr(world.store.timers, "put", put)
        world.clock.advance(CLAIM_SECONDS - 0.001)
        assert create(world.api).code == "idempotency_key_in_use"
        world.clock.advance(0.001)
        assert create(world.api).status == 200
        assert len(world.api.all_pages(None)) == 1

    def test_an_answer_that_cannot_be_kept_is_given_all_the_same(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        puts = 0
        put = world.store.catalogue.put_idempotency_record

        def put_once(*arguments: Any, **more: Any) -> Any:
            nonlocal puts
            puts += 1
            if puts == 2:
                raise StoreUnavailable("not now")
            return put(*arguments, **more)

        catalogue = Overlay(world.store.catalogue, put_idempotency_record=put_once)
        store = Overlay(world.store, catalogue=catalogue)
        api = Api(build_handler(context_for(store, world.clock)))
        assert create(api).status == 201
        assert "idempotency.unrecorded" in [getattr(record, "action", "") for record in caplog.records]


def test_an_answer_that_is_too_long_is_not_kept(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idempotency, "MAX_RESPONSE_BYTES", 10)
    assert create(world.api).status == 201
    answer = create(world.api)
    assert (answer.status, answer.code) == (409, "response_not_kept")
    assert len(world.stored) == 1


def test_the_longest_answer_about_a_timer_is_kept(world: World) -> None:
    body = GOOD | {"payload": ["ü\n"] * 20_000}
    first, again = create(world.api, body), create(world.api, body)
    assert len(first.text.encode()) > 200_000
    assert same(first, again)


def test_a_service_call_keeps_its_key_itself(calls: CallWorld) -> None:
    headers = {"idempotency-key": "k"}
    first = calls.submit(headers=headers)
    calls.clock.advance(2 * DAY)
    again = calls.submit(headers=headers)
    assert (first.status, again.status, again.json()["id"]) == (202, 200, first.json()["id"])
    assert again.headers["idempotent-replayed"] == "true"
