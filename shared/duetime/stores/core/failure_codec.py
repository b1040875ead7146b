"""Failures of attempts as they are stored with timers and in histories, and back."""

from __future__ import annotations

import json

from duetime.domain.timers import Failure, FailureReason
from duetime.domain.times import format_instant, read_instant


def encode_failure(failure: Failure | None) -> str | None:
    if failure is None:
        return None
    at = format_instant(failure.at)
    values = [failure.reason.value, failure.message, at, failure.status]
    if failure.escalation_id is not None:
        values.append(failure.escalation_id)
    return json.dumps(values, ensure_ascii=False)


def decode_failure(text: str) -> Failure:
    """Return the failure. Raises ``ValueError`` or ``TypeError`` for anything that ``encode_failure`` did not
    write."""
    reason, message, at, *others = json.loads(text)
    status, escalation_id = (*others, None) if len(others) == 1 else others
    return Failure(FailureReason(reason), message, read_instant(at), status, escalation_id)
