"""From an attempt to its entry in the timer's attempt log. Pure."""

from __future__ import annotations

import codecs
from datetime import datetime

from duetime.delivery.port import CallbackResult
from duetime.domain.attempts import AttemptOutcome, AttemptRecord, append_attempt
from duetime.domain.timers import Timer
from duetime.engine.response.classify import Classification
from duetime.engine.response.headers import kept_headers, naming_headers

MAX_HEADERS_BYTES = 512
_SHARE_OF_SUCCESS = 4
"""Of a success a quarter of the excerpt is kept: most attempts succeed, nobody looks at them, all are paid for."""

_Utf8Decoder = codecs.getincrementaldecoder("utf-8")


def log_attempt(
    timer: Timer,
    classification: Classification,
    result: CallbackResult,
    outcome: AttemptOutcome,
    *,
    fired_at: datetime,
    first_attempt_at: datetime,
    excerpt_bytes: int,
) -> str:
    """The attempt log of ``timer`` with the attempt that was started at ``fired_at`` and led to ``outcome``.

    ``first_attempt_at`` is when the first attempt of its firing began, which the next one has to know.

    ``excerpt_bytes`` of the response's body are kept, fewer of a success, none for 0.
    """
    body = result.body
    if outcome.is_success:
        headers = naming_headers(result.head)
        excerpt_bytes //= _SHARE_OF_SUCCESS
    else:
        headers = kept_headers(result.head, max_bytes=MAX_HEADERS_BYTES)
    has_excerpt = bool(body) and excerpt_bytes > 0
    record = AttemptRecord(
        number=timer.attempts + 1,
        firing_id=timer.firing_id,
        started_at=fired_at,
        duration_ms=round(result.duration_seconds * 1000),
        outcome=outcome,
        status=result.status,
        reason=classification.reason,
        error_class=None if result.error is None else result.error.value,
        message=classification.message,
        headers=headers,
        body=_excerpt(body, excerpt_bytes) if has_excerpt else None,
        body_bytes=len(body),
        body_truncated=result.body_truncated or (bool(body) and len(body) > excerpt_bytes),
        first_started_at=first_attempt_at if outcome is AttemptOutcome.RETRY and timer.attempts else None,
    )
    return append_attempt(timer.attempt_log, record)


def _excerpt(body: bytes, limit: int) -> str:
    """The beginning of ``body`` as text. A character that the cut goes through is left out."""
    if len(body) <= limit:
        return body.decode("utf-8", "replace")
    return _Utf8Decoder("replace").decode(body[:limit])
