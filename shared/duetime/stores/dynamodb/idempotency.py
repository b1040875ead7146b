"""Idempotency records, in partitions of their own beside the catalogue: put where none is in the way, by one request.

They are spread, since a table with a local index holds at most 10 GB and 1,000 writes a second under one hash key.
TTL removes what has expired.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final
from zlib import crc32

from duetime.domain.errors import StoreUnavailable
from duetime.domain.idempotency import IdempotencyRecord
from duetime.domain.times import format_instant, read_instant
from duetime.stores.dynamodb.catalogue import CATALOGUE_SHARD
from duetime.stores.dynamodb.changes import Item, text
from duetime.stores.dynamodb.items import item_key, time_to_live
from duetime.stores.dynamodb.table import Table

PARTITIONS: Final = 256
_RECORD: Final = "IDEMPOTENCY#"
_MAX_TRIES = 5
_YIELDS: Final = (
    "attribute_not_exists(sortKey) OR record_expires_at <= :now OR record_claim_id IN (:own_claim, :other_claim)"
)


class IdempotencyRecords:
    _table: Table

    def put_idempotency_record(
        self, record: IdempotencyRecord, *, if_claim: str | None = None, now: datetime
    ) -> IdempotencyRecord:
        values = {
            ":now": text(format_instant(now)),
            ":own_claim": text(record.claim_id),
            ":other_claim": text(if_claim or record.claim_id),
        }
        for _ in range(_MAX_TRIES):
            written = self._table.put(_item(record), ConditionExpression=_YIELDS, ExpressionAttributeValues=values)
            if written.is_applied:
                return record
            if written.item is not None:
                return _record(written.item)
        raise StoreUnavailable("the idempotency record is put and removed all the time")


def _item(record: IdempotencyRecord) -> Item:
    return {
        **item_key(CATALOGUE_SHARD - 1 - crc32(record.key.encode()) % PARTITIONS, _RECORD + record.key),
        "row_type": text("IDEMPOTENCY"),
        "record_claim_id": text(record.claim_id),
        "record_content": text(record.content),
        "record_expires_at": text(format_instant(record.expires_at)),
        "expires_at": time_to_live(record.expires_at),
    }


def _record(item: Item) -> IdempotencyRecord:
    return IdempotencyRecord(
        key=item["sortKey"]["S"].removeprefix(_RECORD),
        claim_id=item["record_claim_id"]["S"],
        content=item["record_content"]["S"],
        expires_at=read_instant(item["record_expires_at"]["S"]),
    )
