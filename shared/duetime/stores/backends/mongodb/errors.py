"""The one place where the driver's errors become ours.

The codes of elections and of sharded clusters are the manual's: not run against a replica set or a cluster. Tests
have a server of one member answer some of them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from bson.errors import BSONError
from pymongo.errors import (
    ConfigurationError,
    ConnectionFailure,
    ExecutionTimeout,
    InvalidOperation,
    OperationFailure,
    PyMongoError,
    WaitQueueTimeoutError,
)

from duetime.domain.errors import StoreError, StoreNotReady, StoreUnavailable

P = ParamSpec("P")
R = TypeVar("R")

DUPLICATE_KEY = 11000
_TRANSIENT_TRANSACTION = "TransientTransactionError"
_TRANSIENT_LABELS = (
    _TRANSIENT_TRANSACTION,
    "RetryableWriteError",
    "RetryableError",
    "UnknownTransactionCommitResult",
)

_COMMAND_NOT_FOUND, _COMMAND_NOT_SUPPORTED = 59, 115
_BAD_VALUE, _ILLEGAL_OPERATION = 2, 20
_AUTHENTICATION_CODES = frozenset({13, 18, 8000})
_TRANSIENT_CODES = frozenset(
    {
        6,  # HostUnreachable
        7,  # HostNotFound
        24,  # LockTimeout
        43,  # CursorNotFound: its server is no longer the primary
        50,  # MaxTimeMSExpired
        63,  # StaleShardVersion
        64,  # WriteConcernFailed (timed out)
        89,  # NetworkTimeout
        91,  # ShutdownInProgress
        112,  # WriteConflict
        133,  # FailedToSatisfyReadPreference: a shard of the cluster has no primary at present
        134,  # ReadConcernMajorityNotAvailableYet
        150,  # StaleEpoch
        175,  # QueryPlanKilled
        189,  # PrimarySteppedDown
        202,  # NetworkInterfaceExceededTimeLimit
        237,  # CursorKilled
        246,  # SnapshotUnavailable
        249,  # StaleDbVersion
        251,  # NoSuchTransaction
        262,  # ExceededTimeLimit
        462,  # IngressRequestRateLimitExceeded
        9001,  # SocketException
        10107,  # NotWritablePrimary
        11600,  # InterruptedAtShutdown
        11602,  # InterruptedDueToReplStateChange
        13388,  # StaleConfig
        13435,  # NotPrimaryNoSecondaryOk
        13436,  # NotPrimaryOrSecondary
    }
)


def translated(operation: Callable[P, R]) -> Callable[P, R]:
    """Run ``operation``; whatever the driver raises becomes ``StoreError`` or one of its kinds."""

    @wraps(operation)
    def run(*arguments: P.args, **named: P.kwargs) -> R:
        try:
            return operation(*arguments, **named)
        except (PyMongoError, BSONError) as error:
            raise translate(error) from error

    return run


def translate(error: PyMongoError | BSONError) -> StoreError:
    """Return the ``StoreError`` that stands for ``error``. Messages quote nothing that was to be stored."""
    if isinstance(error, (ConnectionFailure, WaitQueueTimeoutError, ExecutionTimeout)):
        return StoreUnavailable(f"MongoDB cannot be reached: {type(error).__name__}")
    if isinstance(error, OperationFailure):
        return _translate_answer(error)
    if isinstance(error, PyMongoError) and (error.timeout or _is_labelled_transient(error)):
        return StoreUnavailable(f"MongoDB did not answer in time: {type(error).__name__}")
    if isinstance(error, ConfigurationError):
        return StoreNotReady(f"MongoDB: {_first_line(error)}")
    if isinstance(error, InvalidOperation):
        return StoreError("the MongoDB store is closed")
    return StoreError(f"the MongoDB driver failed: {type(error).__name__}")


def _translate_answer(error: OperationFailure) -> StoreError:
    codes = codes_of(error)
    name = (error.details or {}).get("codeName") or type(error).__name__
    if error.timeout or _is_labelled_transient(error) or codes & _TRANSIENT_CODES:
        return StoreUnavailable(f"MongoDB answered {name}")
    if codes & _AUTHENTICATION_CODES:
        return StoreNotReady("MongoDB refuses these credentials, or they may not do this")
    if codes & {_BAD_VALUE} and "hint" in str(error):
        return StoreNotReady("the MongoDB indexes are missing; `duetime init` creates them")
    if codes & {_ILLEGAL_OPERATION} and "replica set" in str(error):
        return not_a_replica_set()
    return StoreError(f"MongoDB answered {name} ({', '.join(map(str, sorted(codes)))})")


def _is_labelled_transient(error: PyMongoError) -> bool:
    return any(error.has_error_label(label) for label in _TRANSIENT_LABELS)


def is_unknown_command(error: OperationFailure) -> bool:
    """Tell whether the server has not got the command, or not in the version as which it works at present."""
    return error.code in (_COMMAND_NOT_FOUND, _COMMAND_NOT_SUPPORTED)


def begin_again() -> OperationFailure:
    """Return what has the driver run a transaction again."""
    details = {"errorLabels": [_TRANSIENT_TRANSACTION]}
    return OperationFailure("the transaction is begun again", details=details)


def not_a_replica_set() -> StoreNotReady:
    return StoreNotReady(
        "this MongoDB server is not part of a replica set, which transactions need (one member is enough)"
    )


def codes_of(error: OperationFailure) -> set[int]:
    """Return the error's code, and those of the single writes in a bulk."""
    details = error.details or {}
    failures = [*details.get("writeErrors", ()), *details.get("writeConcernErrors", ())]
    codes = {failure.get("code") for failure in failures} | {error.code}
    return {code for code in codes if isinstance(code, int) and code != 65}  # 65: several errors, told one by one


def _first_line(error: Exception) -> str:
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__
