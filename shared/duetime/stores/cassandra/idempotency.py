"""Idempotency records: put where none is in the way, by a lightweight transaction. Their TTL removes them."""

from __future__ import annotations

from datetime import datetime

from duetime.domain.errors import StoreUnavailable
from duetime.domain.idempotency import IdempotencyRecord
from duetime.domain.times import from_milliseconds, to_milliseconds
from duetime.stores.cassandra.changes import ttl_seconds
from duetime.stores.cassandra.requests import Requests, Row, Statement, Unsettled
from duetime.stores.rounds import rounds

_FIND = "SELECT record_claim_id, record_content, record_expires_at FROM idempotency_records WHERE record_key = ?"
_PUT = (
    "UPDATE idempotency_records USING TTL ? SET record_claim_id = ?, record_content = ?, record_expires_at = ?"
    " WHERE record_key = ? IF record_claim_id = ?"
)


class IdempotencyRecords:
    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    def put_idempotency_record(
        self, record: IdempotencyRecord, *, if_claim: str | None = None, now: datetime
    ) -> IdempotencyRecord:
        stored = None if if_claim is None else self._find(record.key)
        for _ in rounds():
            if stored is not None and not stored.yields_to(record, if_claim, now):
                return stored
            try:
                if self._requests.decide([_put(record, stored, now)]):
                    return record
            except Unsettled:
                stored = self._find(record.key, is_serial=True)
                if stored == record:
                    return record
                continue
            stored = self._find(record.key)
        raise StoreUnavailable("the idempotency record is being changed too often")

    def _find(self, key: str, *, is_serial: bool = False) -> IdempotencyRecord | None:
        rows = self._requests.read(Statement(_FIND, (key,)), is_serial=is_serial)
        return _record(key, rows[0]) if rows else None


def _put(record: IdempotencyRecord, stored: IdempotencyRecord | None, now: datetime) -> Statement:
    """If ``stored`` is still what is there; None: if nothing is."""
    values = (record.claim_id, record.content, to_milliseconds(record.expires_at))
    ttl = ttl_seconds(record.expires_at, now)
    return Statement(_PUT, (ttl, *values, record.key, None if stored is None else stored.claim_id))


def _record(key: str, row: Row) -> IdempotencyRecord:
    return IdempotencyRecord(
        key=key,
        claim_id=row["record_claim_id"],
        content=row["record_content"],
        expires_at=from_milliseconds(row["record_expires_at"]),
    )
