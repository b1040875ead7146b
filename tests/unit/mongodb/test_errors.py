"""What the driver raises, as Duetime's errors: what may succeed later, what is not set up, and what is a fault."""

from __future__ import annotations

import pytest
from bson.errors import InvalidBSON
from pymongo.errors import (
    AutoReconnect,
    BulkWriteError,
    ConfigurationError,
    ExecutionTimeout,
    InvalidOperation,
    NetworkTimeout,
    NotPrimaryError,
    OperationFailure,
    PyMongoError,
    ServerSelectionTimeoutError,
    WaitQueueTimeoutError,
)

from duetime.domain.errors import StoreError, StoreNotReady, StoreUnavailable
from duetime.stores.backends.mongodb.errors import translate, translated


def failure(code: int, message: str = "confidential", **details: object) -> OperationFailure:
    return OperationFailure(message, code, {"code": code, "errmsg": message, **details})


@pytest.mark.parametrize(
    "error",
    [
        ServerSelectionTimeoutError("confidential"),
        AutoReconnect("confidential"),
        NetworkTimeout("confidential"),
        NotPrimaryError("confidential"),
        WaitQueueTimeoutError("confidential"),
        ExecutionTimeout("confidential", 50),
        failure(112),
        failure(189),
        failure(91),
        failure(43),
        failure(133),
        failure(237),
        failure(462),
        failure(0, errorLabels=["TransientTransactionError"]),
        failure(0, errorLabels=["RetryableWriteError"]),
        failure(0, errorLabels=["UnknownTransactionCommitResult"]),
        BulkWriteError({"writeErrors": [], "writeConcernErrors": [{"code": 64, "errmsg": "timed out"}]}),
    ],
    ids=repr,
)
def test_what_may_succeed_later(error: PyMongoError) -> None:
    translation = translate(error)

    assert type(translation) is StoreUnavailable
    assert "confidential" not in translation.message


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (failure(18), "refuses these credentials"),
        (failure(13), "refuses these credentials"),
        (failure(2, "hint provided does not correspond to an existing index"), "indexes are missing"),
        (failure(20, "Transaction numbers are only allowed on a replica set member or mongos"), "replica set"),
        (ConfigurationError("All nameservers failed to answer\nmore"), "All nameservers failed to answer"),
    ],
    ids=repr,
)
def test_what_is_not_set_up(error: PyMongoError, words: str) -> None:
    translation = translate(error)

    assert type(translation) is StoreNotReady
    assert words in translation.message
    assert "\n" not in translation.message


@pytest.mark.parametrize(
    "error",
    [
        failure(2, "unknown operator: confidential"),
        failure(11000, 'dup key: { timer_id: "confidential" }'),
        BulkWriteError({"writeErrors": [{"code": 11000, "errmsg": "confidential"}], "writeConcernErrors": []}),
        PyMongoError("confidential"),
        InvalidOperation("Cannot use MongoClient after close"),
        InvalidBSON("confidential"),
    ],
    ids=repr,
)
def test_any_other_is_a_fault_and_quotes_nothing(error: PyMongoError | InvalidBSON) -> None:
    translation = translate(error)

    assert type(translation) is StoreError
    assert "confidential" not in translation.message


def test_no_driver_exception_leaves_an_operation() -> None:
    @translated
    def operation(error: Exception) -> None:
        raise error

    with pytest.raises(StoreUnavailable) as raised:
        operation(AutoReconnect("x"))
    assert isinstance(raised.value.__cause__, AutoReconnect)
    with pytest.raises(ZeroDivisionError):
        operation(ZeroDivisionError())
