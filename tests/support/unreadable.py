"""Rows that a newer version has written."""

from __future__ import annotations

from dataclasses import replace

import pytest
import sqlalchemy as sa

from duetime.domain.api_keys import ApiKey
from duetime.domain.principals import Role
from duetime.stores.backends.sql.database import Database
from duetime.stores.backends.sql.tables import api_keys
from duetime.stores.core.store import Store
from duetime.testing.contract.steps import LaterRole, key_of_later_role, make_unreadable, unreadable_namespace
from tests.support.sqlite_rows import executed

__all__ = ["key_of_a_later_role", "make_unreadable", "unreadable_namespace"]


def key_of_a_later_role(store: Store, key_id: str, tenant_id: str, *, secret: str) -> ApiKey:
    """Skips the test where the database itself refuses such a role, and cannot be told not to."""
    key = key_of_later_role(key_id, tenant_id, secret=secret)
    database = getattr(getattr(store, "backend", store), "database", None)
    if not isinstance(database, Database):
        assert store.catalogue.create_api_key(key)
    elif database.engine.dialect.name == "sqlite":
        assert store.catalogue.create_api_key(replace(key, role=Role.READER))
        with database.write() as mutation:
            mutation.connection.exec_driver_sql("PRAGMA ignore_check_constraints = ON")
            executed(
                mutation.connection,
                sa.update(api_keys).where(api_keys.c.key_id == key_id).values(key_role=LaterRole.OPERATOR.value),
            )
            mutation.connection.exec_driver_sql("PRAGMA ignore_check_constraints = OFF")
    else:
        pytest.skip("the database refuses such a role")
    return key
