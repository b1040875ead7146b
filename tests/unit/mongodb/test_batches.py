"""What the driver says of a bulk that failed."""

from __future__ import annotations

from typing import Any

import pytest
from pymongo import DeleteOne, MongoClient
from pymongo.errors import ClientBulkWriteException, OperationFailure

from duetime.stores.backends.mongodb.batches import Batches
from duetime.stores.backends.mongodb.database import Database
from duetime.stores.backends.mongodb.requests import Request

WRITE = Request("timers", DeleteOne({"_id": 1}, namespace="duetime.timers"))


class OneServer(Database):
    """A server that has ``bulkWrite`` and is never asked anything else."""

    @property
    def tells_each_write(self) -> bool:
        return True


@pytest.fixture
def batches() -> Batches:
    client: MongoClient[dict[str, Any]] = MongoClient("mongodb://nobody.test", connect=False)
    return Batches(OneServer(client, "duetime"))


@pytest.mark.parametrize(
    "failed",
    [
        OperationFailure("confidential", 237, {"code": 237}),
        # The driver tells of results that it could not read to their end by a document.
        {"code": 237, "errmsg": "confidential", "errtype": "CursorNotFound"},
    ],
    ids=["a request", "its results"],
)
def test_a_failure_of_the_whole_is_raised(batches: Batches, failed: object, monkeypatch: pytest.MonkeyPatch) -> None:
    def bulk_write(*_: object, **__: object) -> None:
        raise ClientBulkWriteException({"error": failed}, True)

    monkeypatch.setattr(MongoClient, "bulk_write", bulk_write)

    with pytest.raises(OperationFailure) as raised:
        batches.run([WRITE])
    assert raised.value.code == 237
