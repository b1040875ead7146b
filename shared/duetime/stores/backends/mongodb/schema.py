"""The collections and indexes of all entities, and the version that a database has of them."""

from __future__ import annotations

from typing import Final

from pymongo import IndexModel
from pymongo.errors import OperationFailure

from duetime.domain.errors import StoreEmpty, StoreNotReady
from duetime.stores.backends.mongodb.database import Database
from duetime.stores.backends.mongodb.indexes import indexes
from duetime.stores.entities import ENTITIES

SCHEMA_VERSION = 1
_SCHEMA: Final = "schema"
_SCHEMA_ID = "duetime"
_NAMESPACE_EXISTS = 48


def initialise(database: Database) -> None:
    """Make what is missing. Several processes may do so at once: making what is there already does nothing."""
    database.require_transactions()
    stored = _stored_version(database)
    if stored is not None and stored > SCHEMA_VERSION:
        raise _newer(stored)
    # The schema's comes first: where it is, the other collections are Duetime's.
    for name in (_SCHEMA, *sorted({entity.table for entity in ENTITIES})):
        _create_collection(database, name)
    for entity in ENTITIES:
        _create_indexes(database, entity.table, list(indexes(entity)))
    database[_SCHEMA].update_one({"_id": _SCHEMA_ID}, {"$max": {"schema_version": SCHEMA_VERSION}}, upsert=True)


def check(database: Database) -> None:
    """Raise ``StoreNotReady`` unless the collections are there and this program's."""
    database.require_transactions()
    stored = _stored_version(database)
    if stored is None and (not (names := database.collection_names()) or _SCHEMA in names):
        raise StoreEmpty("the MongoDB database has no collections, or not all; `duetime init` creates them")
    if stored is None:
        raise StoreNotReady("the MongoDB database has no collections of Duetime; `duetime init` creates them")
    if stored > SCHEMA_VERSION:
        raise _newer(stored)
    if stored < SCHEMA_VERSION:
        raise StoreNotReady(
            f"the database has schema version {stored}; this program needs {SCHEMA_VERSION}, to which `duetime init`"
            " migrates it"
        )


def _stored_version(database: Database) -> int | None:
    document = database[_SCHEMA].find_one({"_id": _SCHEMA_ID})
    return None if document is None else int(document["schema_version"])


def _newer(stored: int) -> StoreNotReady:
    return StoreNotReady(
        f"the database has schema version {stored}, which is newer than this program's {SCHEMA_VERSION}"
    )


def _create_collection(database: Database, name: str) -> None:
    # Made before any transaction writes to it, and whether or not it has indexes.
    try:
        database.command("create", name)
    except OperationFailure as error:
        if error.code != _NAMESPACE_EXISTS:
            raise


def _create_indexes(database: Database, collection: str, indexes: list[IndexModel]) -> None:
    """Those that are not there by name. One that an operator has made anew, with another TTL say, stays as it is."""
    present = database[collection].index_information()
    missing = [index for index in indexes if index.document["name"] not in present]
    if missing:
        database[collection].create_indexes(missing)
