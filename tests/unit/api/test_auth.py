from __future__ import annotations

import inspect

import pytest

from duetime.api.http.errors import Forbidden, TenantNotFound
from duetime.api.http.problems import problem_reply
from duetime.api.http.route import PUBLIC, Keeps, Route, authorise
from duetime.api.routes import all_routes
from duetime.domain.errors import InvalidInput
from duetime.domain.principals import Principal, Role, own_tenant
from duetime.domain.tenants import DEFAULT_TENANT

OPEN = {"getHealth", "getOpenApi", "getDocs", "getRoot", "getConsole", "getConsoleFile"}


def acme(role: Role) -> Principal:
    return Principal("acme", role, "key-1")


def test_a_route_cannot_be_without_a_declaration() -> None:
    permission = inspect.signature(Route).parameters["permission"]

    assert permission.default is inspect.Parameter.empty
    assert all(route.permission is PUBLIC or isinstance(route.permission, Role) for route in all_routes())


def test_the_public_routes_are_these() -> None:
    assert {route.operation_id for route in all_routes() if route.permission is PUBLIC} == OPEN


def test_a_reader_cannot_change_anything() -> None:
    routes = [route for route in all_routes() if route.permission in (PUBLIC, Role.READER)]

    assert all(route.method == "GET" or route.keeps is Keeps.NOTHING for route in routes)


@pytest.mark.parametrize("needed", Role)
@pytest.mark.parametrize("role", Role)
def test_a_role_is_held_against_what_a_route_needs(role: Role, needed: Role) -> None:
    if role.allows(needed):
        authorise(needed, acme(role), {})
    else:
        with pytest.raises(Forbidden, match=f"the role {needed}"):
            authorise(needed, acme(role), {})


def test_a_public_route_needs_nothing() -> None:
    authorise(PUBLIC, None, {})
    authorise(PUBLIC, acme(Role.READER), {})


def test_the_tenant_of_the_path_must_be_that_of_the_key() -> None:
    authorise(Role.READER, acme(Role.READER), {"tenant": "acme"})

    for other in ("globex", "acm", "acme.", "ACME", "", "acme/..", "no such tenant"):
        with pytest.raises(TenantNotFound):
            authorise(Role.READER, acme(Role.ADMIN), {"tenant": other})


def test_open_mode_allows_every_tenant_that_can_be_one() -> None:
    authorise(Role.ADMIN, None, {"tenant": "globex"})

    with pytest.raises(InvalidInput) as refusal:
        authorise(Role.READER, None, {"tenant": "Globex"})
    assert refusal.value.field == "tenant"


def test_what_is_created_belongs_to_the_tenant_of_the_key() -> None:
    assert own_tenant(acme(Role.WRITER)) == "acme"
    assert own_tenant(None) == DEFAULT_TENANT


def test_a_refused_role_says_which_one_is_needed() -> None:
    reply = problem_reply(Forbidden(Role.ADMIN), request_id="r1")

    assert reply.status == 403
    assert "admin" in reply.body
