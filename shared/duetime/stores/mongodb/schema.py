"""Collections and indexes. Why they are as they are: docs/decisions/0019-mongodb.md."""

from __future__ import annotations

from typing import Any, Final

from pymongo import ASCENDING, DESCENDING, IndexModel
from pymongo.errors import OperationFailure

from duetime.domain.errors import StoreEmpty, StoreNotReady
from duetime.domain.service_calls import CallStatus
from duetime.stores.mongodb import database as names
from duetime.stores.mongodb.database import Database
from duetime.stores.mongodb.url import Document

SCHEMA_VERSION = 2
_SCHEMA_ID = "duetime"
_NAMESPACE_EXISTS = 48

BY_ID: Final = "_id_"
"""What every collection has."""
DUE: Final = "timer_due"
LOOKUP: Final = "timer_lookup"
CORRELATION: Final = "timer_correlation"
EXPIRY: Final = "timer_expiry"
WORKER_EXPIRY: Final = "worker_expiry"
IDEMPOTENCY_EXPIRY: Final = "idempotency_record_expiry"
CALL_KEY: Final = "call_key"
CALL_STATUS: Final = "call_status"
CALL_NAME: Final = "call_name"
CALL_CORRELATION: Final = "call_correlation"
CALL_TAG: Final = "call_tag"
CALL_DUE: Final = "call_due"
CALL_STARRED: Final = "call_starred"
CALL_IDEMPOTENCY: Final = "call_idempotency"
CALL_EXPIRY: Final = "call_expiry"
EXECUTION_KEY: Final = "execution_key"
EXECUTION_NUMBER: Final = "execution_number"
EVENT_SEQUENCE: Final = "event_sequence"
EVENT_UNPUBLISHED: Final = "event_unpublished"
EVENT_PUBLISHED: Final = "event_published"


def _index(name: str, *fields: str, **options: Any) -> IndexModel:
    """A field with ``-`` before it is in descending order."""
    keys = [(field.removeprefix("-"), DESCENDING if field[0] == "-" else ASCENDING) for field in fields]
    return IndexModel(keys, name=name, **options)


def _has(field: str) -> Document:
    return {field: {"$exists": True}}


_LOOKUP_FIELDS = ("shard_id", "row_type", "timer_namespace", "timer_id")
_DUE_FIELDS = ("shard_id", "row_type", "timer_execute_at", "timer_uuid")
IN_DUE_ORDER = [(field, ASCENDING) for field in _DUE_FIELDS]
IN_LOOKUP_ORDER = [(field, ASCENDING) for field in _LOOKUP_FIELDS]
"""Orders that their index has by itself."""

INDEXES: Final[dict[str, list[IndexModel]]] = {
    names.TIMERS: [
        # Finished timers are not in it; nor are shards.
        _index(DUE, *_DUE_FIELDS, partialFilterExpression=_has("timer_execute_at")),
        # Shards are in it too, with neither namespace nor id: one for each shard_id.
        _index(LOOKUP, *_LOOKUP_FIELDS, unique=True),
        _index(
            CORRELATION,
            "timer_namespace",
            "timer_correlation_id",
            "timer_id",
            partialFilterExpression=_has("timer_correlation_id"),
        ),
        _index(EXPIRY, "timer_expires_at", expireAfterSeconds=0, partialFilterExpression=_has("timer_expires_at")),
    ],
    names.NAMESPACES: [
        _index("namespace_tenant", "tenant_id", "is_internal", "_id"),
        _index("namespace_list", "is_internal", "_id"),
    ],
    names.API_KEYS: [_index("api_key_tenant", "tenant_id", "_id")],
    names.WORKERS: [_index(WORKER_EXPIRY, "worker_expires_at", expireAfterSeconds=0)],
    names.IDEMPOTENCY_RECORDS: [_index(IDEMPOTENCY_EXPIRY, "record_expires_at", expireAfterSeconds=0)],
    names.COUNTERS: [],
    names.SECRETS: [],
    names.SERVICE_CALLS: [
        _index(CALL_KEY, "tenant_id", "-service_call_id", unique=True),
        _index(CALL_STATUS, "tenant_id", "status", "-service_call_id"),
        _index(CALL_NAME, "tenant_id", "name", "-service_call_id"),
        _index(CALL_CORRELATION, "tenant_id", "correlation_id", "-service_call_id"),
        _index(CALL_TAG, "tenant_id", "tags", "-service_call_id", partialFilterExpression=_has("tags")),
        _index(
            CALL_DUE,
            "tenant_id",
            "due_at",
            "service_call_id",
            partialFilterExpression={"status": CallStatus.SCHEDULED.value},
        ),
        _index(
            CALL_STARRED,
            "tenant_id",
            "is_starred",
            "-service_call_id",
            partialFilterExpression={"is_starred": True},
        ),
        _index(
            CALL_IDEMPOTENCY,
            "tenant_id",
            "idempotency_key",
            unique=True,
            partialFilterExpression=_has("idempotency_key"),
        ),
        _index(CALL_EXPIRY, "expires_at", partialFilterExpression=_has("expires_at")),
    ],
    names.EXECUTIONS: [
        _index(EXECUTION_KEY, "tenant_id", "service_call_id", "execution_id", unique=True),
        _index(EXECUTION_NUMBER, "tenant_id", "service_call_id", "-execution_number", unique=True),
    ],
    names.OUTBOX: [
        _index(EVENT_SEQUENCE, "tenant_id", "aggregate_id", "event_sequence", unique=True),
        _index(
            EVENT_UNPUBLISHED,
            "tenant_id",
            "aggregate_id",
            "event_sequence",
            "is_unpublished",
            partialFilterExpression={"is_unpublished": True},
        ),
        _index(EVENT_PUBLISHED, "published_at", partialFilterExpression=_has("published_at")),
    ],
    names.SCHEMA: [],
}
"""By collection. Every index that serves a tenant begins with ``tenant_id``."""


def initialise(database: Database) -> None:
    """Make what is missing. Several processes may do so at once: making what is there already does nothing."""
    database.require_transactions()
    stored = _stored_version(database)
    if stored is not None and stored > SCHEMA_VERSION:
        raise _newer(stored)
    for collection, indexes in INDEXES.items():
        _create_collection(database, collection)
        if indexes:
            _create_indexes(database, collection, indexes)
    database[names.SCHEMA].update_one({"_id": _SCHEMA_ID}, {"$max": {"schema_version": SCHEMA_VERSION}}, upsert=True)


def check(database: Database) -> None:
    """Raises ``StoreNotReady`` unless the collections are there and this program's."""
    database.require_transactions()
    stored = _stored_version(database)
    if stored is None and not database.collection_names():
        raise StoreEmpty("the MongoDB database has no collections; `duetime init` creates them")
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
    document = database[names.SCHEMA].find_one({"_id": _SCHEMA_ID})
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
