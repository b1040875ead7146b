"""Failures of attempts as they are stored with timers and in histories, and back."""

from __future__ import annotations

import json

from duetime.domain.timers import Failure, FailureReason
from duetime.domain.times import format_instant, read_instant


def encode_failure(failure: Failure | None) -> str | None:
    if failure is None:
        return None
    at = format_instant(failure.at)
    return json.dumps([failure.reason.value, failure.message, at, failure.status], ensure_ascii=False)


def decode_failure(text: str) -> Failure:
    """Return the failure. Raises ``ValueError`` or ``TypeError`` for anything that ``encode_failure`` did not
    write."""
    reason, message, at, status = json.loads(text)
    return Failure(FailureReason(reason), message, read_instant(at), status)
