from __future__ import annotations

import pytest

from duetime.domain.ids import check_namespace
from duetime.domain.principals import Role
from duetime.domain.tenants import (
    DEFAULT_TENANT,
    MAX_TENANT_CHARACTERS,
    check_tenant,
    internal_namespace,
    is_internal,
)


@pytest.mark.parametrize("tenant_id", [DEFAULT_TENANT, "a", "0", "acme.eu-1_x", "a" * MAX_TENANT_CHARACTERS])
def test_what_a_tenant_may_be(tenant_id: str) -> None:
    assert check_tenant(tenant_id) == tenant_id
    assert check_namespace(tenant_id) == tenant_id


@pytest.mark.parametrize(
    "tenant_id",
    ["", "Acme", "-a", ".a", "_a", "a@b", "a/b", "a#b", "a b", "ä", "a\n", "a" * (MAX_TENANT_CHARACTERS + 1)],
)
def test_what_a_tenant_may_not_be(tenant_id: str) -> None:
    with pytest.raises(ValueError, match="must match"):
        check_tenant(tenant_id)


@pytest.mark.parametrize("role", Role)
def test_a_role_may_do_what_the_ones_before_it_may(role: Role) -> None:
    order = [Role.READER, Role.WRITER, Role.ADMIN]

    assert [needed for needed in order if role.allows(needed)] == order[: order.index(role) + 1]


def test_an_internal_namespace_is_none_that_a_client_can_name() -> None:
    name = internal_namespace("calls", "acme")

    assert name == "calls@acme"
    assert is_internal(name)
    assert not is_internal("calls.acme")
    with pytest.raises(ValueError, match="must match"):
        check_namespace(name)


def test_the_longest_internal_namespace_fits_where_a_namespace_does() -> None:
    assert len(internal_namespace("events", "a" * MAX_TENANT_CHARACTERS)) <= 63


def test_no_internal_namespace_is_made_of_what_is_no_tenant() -> None:
    with pytest.raises(ValueError, match="must match"):
        internal_namespace("calls", "a@b")
