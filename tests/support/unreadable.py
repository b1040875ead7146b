"""Rows that a newer version has written, or damage: made through the port, which writes what it is given."""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import Any

import pytest
import sqlalchemy as sa

from duetime.domain.api_keys import ApiKey, hash_of
from duetime.domain.namespaces import Namespace, NamespaceSettings
from duetime.domain.principals import Role
from duetime.stores.port.store import Store
from duetime.stores.sql.database import Database
from duetime.stores.sql.tables import api_keys
from tests.support.clock import NOW
from tests.support.sqlite_rows import executed

_DAMAGE: Any = "many"


class LaterRole(StrEnum):
    """Of a version to come."""

    OPERATOR = "operator"


def make_unreadable(store: Store, namespace: Namespace) -> Namespace:
    """Damage the settings of ``namespace``."""
    settings = NamespaceSettings(max_in_flight=_DAMAGE)
    assert store.catalogue.update_namespace(
        replace(namespace, settings=settings), if_revision=namespace.revision, now=NOW
    )
    stored = store.catalogue.get_namespace(namespace.name)
    assert stored is not None
    return stored


def unreadable_namespace(store: Store, name: str, *, num_shards: int = 4) -> Namespace:
    namespace, _ = store.catalogue.create_namespace(name, num_shards=num_shards, dedicated=False, now=NOW)
    return make_unreadable(store, namespace)


def key_of_a_later_role(store: Store, key_id: str, tenant_id: str, *, secret: str) -> ApiKey:
    """Skips the test where the database itself refuses such a role, and cannot be told not to."""
    role: Any = LaterRole.OPERATOR
    key = ApiKey(key_id=key_id, tenant_id=tenant_id, role=role, secret_hash=hash_of(secret), created_at=NOW)
    database = getattr(getattr(store, "backend", store), "database", None)
    if not isinstance(database, Database):
        assert store.catalogue.create_api_key(key)
    elif database.engine.dialect.name == "sqlite":
        assert store.catalogue.create_api_key(replace(key, role=Role.READER))
        with database.write() as mutation:
            mutation.connection.exec_driver_sql("PRAGMA ignore_check_constraints = ON")
            executed(
                mutation.connection,
                sa.update(api_keys).where(api_keys.c.key_id == key_id).values(key_role=role.value),
            )
            mutation.connection.exec_driver_sql("PRAGMA ignore_check_constraints = OFF")
    else:
        pytest.skip("the database refuses such a role")
    return key
