"""Idempotency records: put where none is in the way, and removed when they have expired, as timers are."""

from __future__ import annotations

from datetime import datetime

from pymongo.errors import DuplicateKeyError

from duetime.domain.errors import StoreUnavailable
from duetime.domain.idempotency import IdempotencyRecord
from duetime.stores.mongodb.batches import Batches, Delete
from duetime.stores.mongodb.database import IDEMPOTENCY_RECORDS, Database
from duetime.stores.mongodb.errors import translated
from duetime.stores.mongodb.reading import read
from duetime.stores.mongodb.schema import BY_ID, IDEMPOTENCY_EXPIRY

_MAX_TRIES = 10


class IdempotencyRecords:
    def __init__(self, database: Database) -> None:
        self._collection = database[IDEMPOTENCY_RECORDS]
        self._batches = Batches(database)

    @translated
    def put_idempotency_record(
        self, record: IdempotencyRecord, *, if_claim: str | None = None, now: datetime
    ) -> IdempotencyRecord:
        claims = [record.claim_id, *([] if if_claim is None else [if_claim])]
        yields = [{"record_expires_at": {"$lte": now}}, {"record_claim_id": {"$in": claims}}]
        document = {
            "record_claim_id": record.claim_id,
            "record_content": record.content,
            "record_expires_at": record.expires_at,
        }
        for _ in range(_MAX_TRIES):
            try:
                self._collection.replace_one({"_id": record.key, "$or": yields}, document, upsert=True)
            except DuplicateKeyError:  # one is there that does not yield
                found = self._collection.find_one({"_id": record.key})
                if found is not None:
                    return IdempotencyRecord(
                        key=record.key,
                        claim_id=found["record_claim_id"],
                        content=found["record_content"],
                        expires_at=found["record_expires_at"],
                    )
            else:
                return record
        raise StoreUnavailable("the idempotency record is put and removed all the time")

    @translated
    def prune(self, *, now: datetime, limit: int) -> int:
        expired = {"record_expires_at": {"$lte": now}}
        order = [("record_expires_at", 1)]
        found = read(self._collection, expired, {"_id": 1}, order=order, limit=limit, hint=IDEMPOTENCY_EXPIRY)
        deletes = [Delete(collection=IDEMPOTENCY_RECORDS, found_by={**each, **expired}, hint=BY_ID) for each in found]
        return sum(self._batches.run(deletes))
