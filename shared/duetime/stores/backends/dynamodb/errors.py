"""The one place where errors of the driver become ours."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError
from botocore.exceptions import ConnectionError as BotoConnectionError
from botocore.parsers import ResponseParserError

from duetime.domain.errors import (
    StoreEmpty,
    StoreError,
    StoreNotReady,
    StoreRefused,
    StoreThrottled,
    StoreUnavailable,
)
from duetime.stores.backend import PartitionUnavailable

RETRY_AFTER_SECONDS = 1.0

_THROTTLED_PARTITION = "ProvisionedThroughputExceededException"
_KEY_RANGE = "KeyRangeThroughputExceeded"
"""In the reason of a ThrottlingException, where it is one partition of a table on demand."""
_TRANSIENT_CODES = frozenset(
    {
        "InternalFailure",
        "InternalServerError",
        "ReplicatedWriteConflictException",
        "RequestTimeout",
        "ServiceUnavailable",
        "TransactionConflictException",
        "TransactionInProgressException",
    }
)
_THROTTLING_CODES = frozenset({"RequestLimitExceeded", "SlowDown", "ThrottlingException", "TooManyRequestsException"})
TRANSIENT_STATEMENT_CODES = frozenset(
    {
        "InternalServerError",
        "ProvisionedThroughputExceeded",
        "RequestLimitExceeded",
        "ThrottlingError",
        "TransactionConflict",
    }
)
"""Codes of a single statement in a batch (BatchStatementError) after which the same statement may succeed."""
_FULL = "ItemCollectionSizeLimitExceeded"
_TOO_LARGE = re.compile("item size|size of (the )?items", re.IGNORECASE)
"""In the message of a ValidationException, which stands for mistakes of ours as well."""


class ConditionFailed(Exception):
    """A conditional write was refused; never leaves this package.

    ``item`` is the stored item, None when there is none. ``is_repeated``: the driver sent the request more than
    once, so the item may be the work of this very write, whose first answer was lost.
    """

    def __init__(self, item: dict[str, Any] | None, *, is_repeated: bool) -> None:
        super().__init__("condition failed")
        self.item = item
        self.is_repeated = is_repeated


def translate(error: ClientError | BotoCoreError | ResponseParserError) -> Exception:
    """Return ``ConditionFailed`` or the ``StoreError`` that stands for ``error``."""
    if isinstance(error, ClientError):
        return _translate_answer(error)
    if isinstance(error, (BotoConnectionError, HTTPClientError, ResponseParserError)):
        return StoreUnavailable(
            f"DynamoDB cannot be reached: {type(error).__name__}", retry_after_seconds=RETRY_AFTER_SECONDS
        )
    return StoreError(f"DynamoDB client: {error}")


def statement_refused(error: dict[str, Any]) -> StoreError:
    """Return what the error of a single statement in a batch stands for, if that is not transient."""
    if error["Code"] == "ResourceNotFound":
        raise _no_table()
    return _refusal("refused a statement", [error["Code"]], error.get("Message", ""))


def _refusal(what: str, codes: Sequence[str], message: str) -> StoreError:
    """Return ``StoreRefused`` where it is the size of what was to be stored: clients are shown that error, so it
    quotes nothing."""
    if any(code.startswith(_FULL) for code in codes):
        return StoreRefused(f"the partition that this belongs to is full ({', '.join(codes)})")
    if _TOO_LARGE.search(message):
        return StoreRefused("this is too large for an item of DynamoDB")
    return StoreError(f"DynamoDB {what}: {', '.join(codes)}: {message}")


def _no_table() -> StoreNotReady:
    return StoreEmpty("the DynamoDB table does not exist; `duetime init` creates it")


def throttled() -> StoreUnavailable:
    return PartitionUnavailable("DynamoDB throttles a partition", retry_after_seconds=RETRY_AFTER_SECONDS)


def unprocessed() -> StoreUnavailable:
    return StoreThrottled("DynamoDB left keys unprocessed", retry_after_seconds=RETRY_AFTER_SECONDS)


def _translate_answer(error: ClientError) -> Exception:
    answer: dict[str, Any] = dict(error.response)
    code = answer.get("Error", {}).get("Code", "")
    metadata = answer.get("ResponseMetadata", {})
    if code == "ConditionalCheckFailedException":
        return ConditionFailed(answer.get("Item"), is_repeated=metadata.get("RetryAttempts", 0) > 0)
    if code == "ResourceNotFoundException":
        return _no_table()
    reasons = answer.get("ThrottlingReasons") or ()
    if code == _THROTTLED_PARTITION or any(_KEY_RANGE in each.get("reason", "") for each in reasons):
        return throttled()
    status = metadata.get("HTTPStatusCode", 0)
    if code in _THROTTLING_CODES or status == 429:
        return StoreThrottled(f"DynamoDB answered {code}", retry_after_seconds=RETRY_AFTER_SECONDS)
    if code in _TRANSIENT_CODES or status >= 500:
        return StoreUnavailable(f"DynamoDB answered {code}", retry_after_seconds=RETRY_AFTER_SECONDS)
    return _refusal("answered", [code], answer.get("Error", {}).get("Message", ""))


def cancelled_for_good(reasons: Sequence[dict[str, Any]]) -> StoreError:
    """Return what a cancelled transaction stands for that would be cancelled again."""
    codes = sorted({str(reason["Code"]) for reason in reasons if reason.get("Code") not in (None, "None")})
    messages = "; ".join(str(reason["Message"]) for reason in reasons if reason.get("Message"))
    return _refusal("cancelled a transaction", codes, messages)
