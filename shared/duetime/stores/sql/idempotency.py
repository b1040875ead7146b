"""Idempotency records: put where none is in the way, and removed when they have expired."""

from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa

from duetime.domain.errors import StoreUnavailable
from duetime.domain.idempotency import IdempotencyRecord
from duetime.domain.times import from_milliseconds, to_milliseconds
from duetime.stores.sql.database import Database
from duetime.stores.sql.tables import given, given_count, idempotency_records

_MAX_TRIES = 10
_NAMES = ("record_key", "record_claim_id", "record_content", "record_expires_at")


class IdempotencyRecords:
    def __init__(self, database: Database) -> None:
        self._database = database
        row = idempotency_records.c
        prepare = database.prepare
        values = {name: given(name) for name in _NAMES}
        self._insert = prepare(database.insert_if_absent(idempotency_records).values(values), *_NAMES)
        yields = sa.or_(
            row.record_expires_at <= given("now"),
            row.record_claim_id == given("own_claim"),
            row.record_claim_id == given("other_claim"),
        )
        change = {name: value for name, value in values.items() if name != "record_key"}
        self._replace = prepare(
            sa.update(idempotency_records).where(row.record_key == given("key"), yields).values(change),
            *("key", "now", "own_claim", "other_claim", *_NAMES[1:]),
        )
        columns = [row[name] for name in _NAMES]
        self._get = prepare(sa.select(*columns).where(row.record_key == given("key")), "key")
        self._expired = prepare(
            sa.select(row.record_key)
            .where(row.record_expires_at <= given("now"))
            .order_by(row.record_expires_at)
            .limit(given_count("limit")),
            "now",
            "limit",
        )
        self._prune = prepare(
            sa.delete(idempotency_records).where(
                row.record_key == given("key"), row.record_expires_at <= given("now")
            ),
            "key",
            "now",
        )

    def put_idempotency_record(
        self, record: IdempotencyRecord, *, if_claim: str | None = None, now: datetime
    ) -> IdempotencyRecord:
        key, values = record.key, (record.claim_id, record.content, to_milliseconds(record.expires_at))
        for _ in range(_MAX_TRIES):
            with self._database.write(now) as mutation:
                connection = mutation.connection
                if self._insert.count(connection, key, *values):
                    return record
                claims = (record.claim_id, if_claim or record.claim_id)
                if self._replace.count(connection, key, to_milliseconds(mutation.now), *claims, *values):
                    return record
                found = self._get.one(connection, key).first()
            if found is not None:
                claim_id, content, expires_at = tuple(found)[1:]
                return IdempotencyRecord(
                    key=key, claim_id=claim_id, content=content, expires_at=from_milliseconds(expires_at)
                )
        raise StoreUnavailable("the idempotency record is put and removed all the time")

    def prune(self, *, now: datetime, limit: int) -> int:
        with self._database.read() as connection:
            if self._expired.one(connection, to_milliseconds(now), 1).first() is None:
                return 0
        with self._database.write(now) as mutation:
            now_ms = to_milliseconds(mutation.now)
            keys = [row[0] for row in self._expired.one(mutation.connection, now_ms, limit).fetchall()]
            return self._prune.many(mutation.connection, [(key, now_ms) for key in keys])
