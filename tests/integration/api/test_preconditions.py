"""A write honours the precondition that it is sent with, or refuses it: none is passed over."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from duetime.api.http.route import WRITES
from tests.support.stores import memory_store
from tests.support.tenants import OPERATIONS, TenantWorld, everything_of, make_tenant_world

CONDITIONS = {
    "If-Match": '"999"',
    "If-None-Match": "*",
    "If-Unmodified-Since": "Mon, 01 Jan 2001 00:00:00 GMT",
}
"""Each with a value that does not hold for what is there."""

OPERATION_IDS = sorted(operation_id for operation_id, route in OPERATIONS.items() if route.method in WRITES)


@pytest.fixture
def tenants() -> Iterator[TenantWorld]:
    with memory_store() as store:
        yield make_tenant_world(store)


@pytest.mark.parametrize("name", CONDITIONS)
def test_a_write_is_not_carried_out_against_its_precondition(tenants: TenantWorld, name: str) -> None:
    before = everything_of(tenants)
    for operation_id in OPERATION_IDS:
        answer = tenants.globex.request(operation_id, headers={name.lower(): CONDITIONS[name]})

        if name in OPERATIONS[operation_id].conditions:
            assert (answer.status, answer.code) == (412, "revision_mismatch"), operation_id
        else:
            assert (answer.status, list(answer.faults)) == (400, [name]), operation_id
        assert everything_of(tenants) == before, operation_id
