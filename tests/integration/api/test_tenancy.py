"""Two tenants that share everything but what is theirs: nothing of one can be seen or changed by the other."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from io import StringIO

import pytest

from duetime.api.handler import build_handler
from duetime.api.http.route import Keeps
from duetime.domain.principals import Role
from duetime.domain.tenants import internal_namespace
from duetime.runtime.local_key import LocalSecretBox, ProcessKey
from duetime.runtime.logs import LogFormat, LogLevel, configure_logging
from tests.support.api import context_for
from tests.support.clock import NOW
from tests.support.dynamodb import moto_subject
from tests.support.http import Answer, Api
from tests.support.stores import memory_store
from tests.support.tenants import (
    NEEDS_KEY,
    OPERATIONS,
    SAMPLES,
    TenantWorld,
    everything_of,
    make_tenant_world,
    path_of,
)

ADDRESSED = sorted(
    operation_id
    for operation_id in NEEDS_KEY
    if "<namespace>" in OPERATIONS[operation_id].path or "<tenant>" in OPERATIONS[operation_id].path
)
"""The operations whose path says whose they are."""

ADMINS = [
    *("putCalendar", "deleteCalendar"),
    *("putNamespace", "deleteNamespace", "pauseNamespace", "resumeNamespace", "reshardNamespace", "listShards"),
    *("createSecret", "listSecrets", "deleteSecret", "createApiKey", "listApiKeys", "deleteApiKey"),
    *("putEventWebhook", "getEventWebhook", "deleteEventWebhook"),
    *("createEventSecret", "listEventSecrets", "deleteEventSecret"),
]
READING = [operation_id for operation_id in NEEDS_KEY if OPERATIONS[operation_id].method == "GET"]
READERS = ["previewSchedule"]
"""They read, and their method does not say so."""


def role_for(operation_id: str) -> Role:
    if operation_id in ADMINS:
        return Role.ADMIN
    return Role.READER if OPERATIONS[operation_id].method == "GET" or operation_id in READERS else Role.WRITER


@pytest.fixture
def world(request: pytest.FixtureRequest) -> Iterator[TenantWorld]:
    """On SQLite, unless a test is given another store."""
    opened = moto_subject() if getattr(request, "param", None) == "dynamodb" else nullcontext()
    with opened as subject, memory_store() as memory:
        yield make_tenant_world(memory if subject is None else subject.store)


ON_EVERY_STORE = pytest.mark.parametrize("world", ["sqlite", "dynamodb"], indirect=True)


def test_a_key_is_needed_but_for_these() -> None:
    public = {"getHealth", "getOpenApi", "getDocs", "getRoot", "getConsole", "getConsoleFile"}
    assert OPERATIONS.keys() - NEEDS_KEY == public


def test_what_is_named_here_is_there() -> None:
    assert SAMPLES.keys() == OPERATIONS.keys()
    assert set(ADMINS) | set(READERS) <= set(NEEDS_KEY)
    assert all(OPERATIONS[operation_id].keeps is Keeps.NOTHING for operation_id in READERS)


REFUSED_BY_STATE = {"redriveTimer", "answerTimer", "answerOccurrence", "cancelServiceCall", "fireServiceCall"}
"""The timers of these tenants have not failed, no firing waits, and their service calls have ended."""


ENDINGS = ("cancel", "delete", "deleteNamespace")
ONE_AFTER_THE_OTHER = sorted(NEEDS_KEY, key=lambda each: sum(map(each.startswith, ENDINGS)))
"""What the others are about is there until the last."""


@pytest.mark.parametrize(
    ("world", "operation_ids"),
    [
        ("sqlite", READING),
        *(("sqlite", [each]) for each in NEEDS_KEY if each not in READING),
        # To make tenants there takes far longer than all requests.
        ("dynamodb", ONE_AFTER_THE_OTHER),
    ],
    indirect=["world"],
)
def test_no_answer_has_anything_of_another(world: TenantWorld, operation_ids: list[str]) -> None:
    before = everything_of(world)

    for operation_id in operation_ids:
        answer = world.acme.request(operation_id)

        if operation_id in REFUSED_BY_STATE:
            assert answer.status == 409, answer
        else:
            assert answer.status < 300, (operation_id, answer)
        assert "globex" not in answer.text, operation_id
    assert everything_of(world) == before


@ON_EVERY_STORE
class TestIsolation:
    def test_what_is_anothers_reads_as_what_is_not_there(self, world: TenantWorld) -> None:
        theirs = world.globex.parameters
        nowhere = theirs | {"namespace": "nowhere-orders", "tenant": "nowhere"}
        before = everything_of(world)

        for operation_id in ADDRESSED:
            answer = world.acme.request(operation_id, theirs)

            assert everything_of(world) == before, operation_id
            assert world.globex.mark not in answer.text, operation_id
            if operation_id == "putNamespace":
                assert (answer.status, answer.json()["detail"]) == (409, "the name 'globex-orders' is not available")
                continue
            assert answer.status == 404, operation_id
            absent = world.acme.request(operation_id, nowhere)
            assert comparable(answer, "globex") == comparable(absent, "nowhere"), operation_id

    @pytest.mark.parametrize("other", ["globex", "acm", "acme.", "ACME", "no%20such%20tenant"])
    def test_a_tenant_that_is_not_that_of_the_key_is_not_there(self, world: TenantWorld, other: str) -> None:
        answer = world.acme.api(Role.ADMIN).get(f"/v1/tenants/{other}/api-keys")
        assert (answer.status, answer.code) == (404, "tenant_not_found")

    def test_an_id_of_anothers_key_is_one_that_is_not_there(self, world: TenantWorld) -> None:
        own = world.acme.parameters

        theirs = world.acme.request("deleteApiKey", own | {"key_id": world.globex.parameters["key_id"]})
        absent = world.acme.request("deleteApiKey", own | {"key_id": "nowhere-reader"})

        assert theirs.status == 404
        assert comparable(theirs, "globex") == comparable(absent, "nowhere")
        assert world.globex.request("listTimers", role=Role.READER).status == 200

    def test_an_id_of_anothers_secret_is_one_that_is_not_there(self, world: TenantWorld) -> None:
        own = world.acme.parameters

        theirs = world.acme.request("deleteSecret", own | {"secret_id": world.globex.parameters["secret_id"]})

        assert (theirs.status, theirs.code) == (404, "secret_not_found")

    def test_a_correlation_id_that_both_use_finds_ones_own(self, world: TenantWorld) -> None:
        for tenant in (world.acme, world.globex):
            found = tenant.api().list(correlationId="shared").json()["items"]
            assert [timer["namespace"] for timer in found] == [f"{tenant.name}-orders"] * 2

    @pytest.mark.parametrize("operation_id", ["listNamespaces", "listApiKeys", "listServiceCalls", "listExecutions"])
    def test_a_cursor_of_another_is_none(self, world: TenantWorld, operation_id: str) -> None:
        cursor = world.globex.request(operation_id).json()["nextCursor"]
        assert cursor is not None
        path = path_of(OPERATIONS[operation_id], world.acme.parameters)

        answer = world.acme.api().list(path, limit="1", cursor=cursor)

        assert (answer.status, answer.code) == (400, "invalid_cursor")
        own_path = path_of(OPERATIONS[operation_id], world.globex.parameters)
        assert world.globex.api(Role.ADMIN).list(own_path, limit="1", cursor=cursor).status == 200

    def test_a_cursor_of_timers_leads_nowhere_else(self, world: TenantWorld) -> None:
        cursor = world.globex.api().list(limit="1").json()["nextCursor"]
        assert cursor is not None

        assert world.acme.api().list(limit="1", cursor=cursor).code == "invalid_cursor"

    def test_lists_of_namespaces_are_complete_and_ones_own(self, world: TenantWorld) -> None:
        names = [item["name"] for item in world.acme.api().all_pages("/v1/namespaces", limit="1")]

        assert names == ["acme-orders", "acme-others"]

    def test_if_match_does_not_tell_that_anothers_namespace_exists(self, world: TenantWorld) -> None:
        def put(name: str) -> Answer:
            return world.acme.api().call("PUT", f"/v1/namespaces/{name}", {}, headers={"if-match": '"1"'})

        theirs, absent = put("globex-orders"), put("nowhere-orders")

        assert theirs.status == 412
        assert comparable(theirs, "globex") == comparable(absent, "nowhere")

    def test_a_namespace_that_is_known_already_is_not_shown_to_another(self, world: TenantWorld) -> None:
        """The cache of namespaces is shared by all tenants."""
        assert world.globex.api().read("t1").status == 200

        assert world.acme.request("getTimer", world.globex.parameters).code == "namespace_not_found"

    def test_logs_have_neither_keys_nor_contents(self, world: TenantWorld) -> None:
        with everything_logged() as stream:
            for operation_id in NEEDS_KEY:
                world.acme.request(operation_id, world.globex.parameters)
                world.acme.request(operation_id)
            Api(world.handler, key="wrong " + world.acme.keys[Role.ADMIN]).get("/v1/namespaces")
            Api(world.handler, key=world.acme.keys[Role.ADMIN][:-1] + "!").get("/v1/namespaces")
            world.acme.api().get("/v1/namespaces", query={"key": world.acme.keys[Role.ADMIN]})

        written = stream.getvalue()
        events = [json.loads(line) for line in written.splitlines()]
        assert {event["action"] for event in events} >= {"request.served", "auth.refused"}
        assert {event.get("tenant_id", "acme") for event in events} == {"acme"}
        for tenant in (world.acme, world.globex):
            assert tenant.mark not in written
            for key in tenant.keys.values():
                assert key.rpartition("_")[2][:20] not in written


class TestInternalNamespaces:
    """The name is refused before any store is asked."""

    @pytest.mark.parametrize("is_open", [True, False])
    def test_nobody_can_name_one(self, world: TenantWorld, is_open: bool) -> None:
        name = internal_namespace("calls", "acme")
        world.store.catalogue.create_namespace(name, num_shards=4, dedicated=False, now=NOW, tenant_id="acme")
        box = LocalSecretBox(ProcessKey())
        is_asked_for_no_key = build_handler(context_for(world.store, world.clock, secret_box=box))
        api = Api(is_asked_for_no_key) if is_open else world.acme.api()
        for operation_id in (one for one in ADDRESSED if "<namespace>" in OPERATIONS[one].path):
            route, sample = OPERATIONS[operation_id], SAMPLES[operation_id]
            path = path_of(route, world.acme.parameters | {"namespace": name})

            answer = api.call(route.method, path, sample.body, query=sample.query)

            if operation_id == "putNamespace":
                assert (answer.status, set(answer.faults)) == (400, {"namespace"})
            else:
                assert (answer.status, answer.code) == (404, "namespace_not_found"), operation_id


class TestOpenMode:
    """Nobody is asked for a key: everything is allowed, for all tenants."""

    @pytest.fixture
    def api(self, world: TenantWorld) -> Api:
        return Api(build_handler(context_for(world.store, world.clock)))

    def test_namespaces_of_all_tenants_are_there(self, world: TenantWorld, api: Api) -> None:
        names = [item["name"] for item in api.all_pages("/v1/namespaces", limit="1")]

        assert names == ["acme-orders", "acme-others", "globex-orders", "globex-others"]
        assert api.get("/v1/namespaces/globex-orders/timers/t1").status == 200

    def test_what_is_created_belongs_to_the_default_tenant(self, world: TenantWorld, api: Api) -> None:
        created = api.call("PUT", "/v1/namespaces/new", {})

        assert (created.status, created.json()["tenantId"]) == (201, "default")
        assert world.acme.api().get("/v1/namespaces/new").status == 404

    def test_a_tenants_namespace_is_changed_and_stays_the_tenants(self, world: TenantWorld, api: Api) -> None:
        changed = api.call("PUT", "/v1/namespaces/globex-orders", {"maxInFlight": 3})

        assert (changed.status, changed.json()["tenantId"], changed.json()["maxInFlight"]) == (200, "globex", 3)

    def test_keys_can_be_made_for_any_tenant(self, world: TenantWorld, api: Api) -> None:
        created = api.call("POST", "/v1/tenants/initech/api-keys", {"role": "admin"})

        assert created.status == 201
        key = created.json()["key"]
        assert Api(world.handler, key=key).get("/v1/tenants/initech/api-keys").status == 200
        assert Api(world.handler, key=key).get("/v1/tenants/acme/api-keys").status == 404

    def test_what_is_no_tenant_is_named(self, api: Api) -> None:
        answer = api.get("/v1/tenants/In%40itech/api-keys")

        assert (answer.status, set(answer.faults)) == (400, {"tenant"})

    def test_a_cursor_made_without_a_key_is_none_for_a_tenant(self, world: TenantWorld, api: Api) -> None:
        cursor = api.list("/v1/namespaces", limit="1").json()["nextCursor"]

        assert world.acme.api().list("/v1/namespaces", cursor=cursor).code == "invalid_cursor"


class TestRoles:
    @pytest.mark.parametrize("role", Role)
    def test_a_role_may_do_what_the_table_says(self, world: TenantWorld, role: Role) -> None:
        allowed = [one for one in NEEDS_KEY if role.allows(role_for(one))]
        before = everything_of(world)
        for operation_id in sorted(set(NEEDS_KEY) - set(allowed)):
            answer = world.acme.request(operation_id, role=role)

            assert (answer.status, answer.code) == (403, "forbidden"), operation_id
            assert answer.json()["detail"] == f"this needs an API key with the role {role_for(operation_id)}"
        assert everything_of(world) == before

        # What removes something comes last: all that the others are about is there.
        for operation_id in sorted(allowed, key=lambda one: OPERATIONS[one].method == "DELETE"):
            assert world.acme.request(operation_id, role=role).status not in (401, 403), operation_id

    def test_a_role_that_is_not_enough_learns_nothing_of_what_is_there(self, world: TenantWorld) -> None:
        answers = [
            world.acme.request("deleteTimer", parameters, role=Role.READER)
            for parameters in (world.acme.parameters, world.globex.parameters)
        ]

        assert comparable(answers[0], "acme") == comparable(answers[1], "globex")


@contextmanager
def everything_logged() -> Iterator[StringIO]:
    """What a process writes at debug level."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = StringIO()
    configure_logging(LogFormat.JSON, LogLevel.DEBUG, stream)
    try:
        yield stream
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


def comparable(answer: Answer, name: str) -> tuple[int, dict[str, str], str]:
    """An answer without the name that the request had in its path."""
    return answer.status, {**answer.headers}, answer.text.replace(name, "<name>")
