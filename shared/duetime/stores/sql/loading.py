"""Rows that come from another store: inserted as they are, or compared with what is there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import sqlalchemy as sa

from duetime.domain.errors import StoreError
from duetime.stores.port.transfer import LoadStatus
from duetime.stores.sql.database import Database, Mutation

T = TypeVar("T")

_MAX_TRIES = 10
"""How often a batch begins anew because somebody else has just inserted one of its rows."""


def load_rows(
    database: Database,
    items: Sequence[T],
    *,
    insert: Callable[[Mutation, list[T]], int],
    find: Callable[[sa.Connection, Sequence[T]], list[LoadStatus | None]],
) -> list[LoadStatus]:
    """``insert`` says how many rows it inserted; ``find`` what is in the place of each: None for nothing.

    The usual case is that all are new, or that all are known, after a load that was cut short.
    """
    if not items:
        return []
    with database.write() as mutation:
        if insert(mutation, list(items)) == len(items):
            return [LoadStatus.LOADED] * len(items)
        mutation.connection.rollback()
    for _ in range(_MAX_TRIES):
        with database.write() as mutation:
            found = find(mutation.connection, items)
            absent = [item for item, status in zip(items, found, strict=True) if status is None]
            if insert(mutation, absent) == len(absent):
                return [status or LoadStatus.LOADED for status in found]
            mutation.connection.rollback()
    # MySQL, say, passes over a row that breaks a rule of the table.
    raise StoreError("the database takes a row neither as a new one nor as a known one")


def one_by_one(
    find: Callable[[sa.Connection, T], LoadStatus | None],
) -> Callable[[sa.Connection, Sequence[T]], list[LoadStatus | None]]:
    return lambda connection, items: [find(connection, item) for item in items]


def status_of(is_same: bool) -> LoadStatus:
    return LoadStatus.PRESENT if is_same else LoadStatus.CONFLICT
