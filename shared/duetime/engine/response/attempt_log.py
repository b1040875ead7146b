"""From an attempt to its entry in the timer's attempt log, with what is kept of the response. Pure."""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache

from duetime.delivery.port import CallbackResult
from duetime.domain.attempts import AttemptOutcome, AttemptRecord, append_attempt
from duetime.domain.name_patterns import parse_name_patterns
from duetime.domain.redaction import RedactionRules, shown_value
from duetime.domain.timers import Timer
from duetime.engine.response.classify import Classification

MAX_HEADERS_BYTES = 512
_SHARE_OF_SUCCESS = 4
"""Of a success a quarter of the excerpt is kept: most attempts succeed, nobody looks at them, all are paid for."""

_GOES_ON = (AttemptOutcome.RETRY, AttemptOutcome.WAITING)

_Utf8Decoder = codecs.getincrementaldecoder("utf-8")

MAX_VALUE_CHARACTERS = 128
MAX_NAMING_BYTES = 160
_OVERHEAD = len('"":"",')

_NAMING = (
    "content-type",
    "x-request-id",
    "request-id",
    "x-amzn-requestid",
    "apigw-requestid",
    "x-amzn-trace-id",
    "traceparent",
)
"""What a response is, and what its sender's own logs call it: all that is kept of the response to a success."""
_FIRST = ("retry-after", "location", *_NAMING, "server", "date", "content-length", "content-encoding")
"""What tells most about a response. The others follow in the order in which they came."""
_ALL_RANKS = range(len(_FIRST) + 1)
_NAMING_RANKS = range(_FIRST.index(_NAMING[0]), _FIRST.index(_NAMING[-1]) + 1)
_IGNORED = frozenset({"connection", "keep-alive", "transfer-encoding", "trailer", "te", "upgrade"})
"""They belong to the connection and tell nothing about the response."""
_MAX_NAME_BYTES = 128
_REDACTION = RedactionRules(fields=parse_name_patterns("*"))
"""Every parameter of a URL: a redirect may have a code or a state that signs in."""


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
    """Return the attempt log of ``timer`` with the attempt that was started at ``fired_at`` and led to ``outcome``.

    ``first_attempt_at`` is when the first attempt of its firing began, which the next one has to know.

    ``excerpt_bytes`` of the response's body are kept, fewer of a success, none for 0.
    """
    body = result.body
    headers: Mapping[str, str]
    if outcome.is_success or outcome is AttemptOutcome.WAITING:
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
        first_started_at=first_attempt_at if timer.attempts and outcome in _GOES_ON else None,
    )
    return append_attempt(timer.attempt_log, record)


def _excerpt(body: bytes, limit: int) -> str:
    """Return the beginning of ``body`` as text. A character that the cut goes through is left out."""
    if len(body) <= limit:
        return body.decode("utf-8", "replace")
    return _Utf8Decoder("replace").decode(body[:limit])


# -- headers ----------------------------------------------------------------------------------------------------


@lru_cache(maxsize=128)
def naming_headers(lines: tuple[bytes, ...]) -> Mapping[str, str]:
    """Return the few headers that name a response, as in ``kept_headers``. Of a batch many heads are the same."""
    return _select(lines, MAX_NAMING_BYTES, _NAMING_RANKS)


def kept_headers(lines: Sequence[bytes], *, max_bytes: int) -> dict[str, str]:
    """Lower-case names and readable values, the most telling first, within ``max_bytes`` as JSON text.

    ``lines`` are the raw lines of a response's head (``CallbackResult.head``). A comma joins repeated headers.
    """
    return _select(lines, max_bytes, _ALL_RANKS)


def _select(lines: Sequence[bytes], max_bytes: int, ranks: range) -> dict[str, str]:
    found: list[tuple[int, str, bytes]] = []
    for line in lines:
        raw_name, colon, raw_value = line.partition(b":")
        if colon and len(raw_name) <= _MAX_NAME_BYTES:
            rank, name = _kind(raw_name)
            if rank in ranks:
                found.append((rank, name, raw_value))
    found.sort(key=_rank)
    headers: dict[str, str] = {}
    room = max_bytes
    for _, name, raw_value in found:
        value = _shown(name, raw_value)
        needed = len(name) + len(value.encode()) + value.count('"') + value.count("\\") + _OVERHEAD
        if needed <= room:
            room -= needed
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def _rank(header: tuple[int, str, bytes]) -> int:
    return header[0]


@lru_cache(maxsize=512)
def _kind(raw_name: bytes) -> tuple[int, str]:
    """Return the rank of a header (-1: not kept) and its name as it is shown."""
    name = _readable(raw_name.strip().lower())
    if not name or name in _IGNORED:
        return -1, name
    return (_FIRST.index(name) if name in _FIRST else len(_FIRST)), name


def _shown(name: str, raw: bytes) -> str:
    value = shown_value(name, _readable(raw.strip()), _REDACTION)
    return value if len(value) <= MAX_VALUE_CHARACTERS else value[:MAX_VALUE_CHARACTERS] + "..."


def _readable(raw: bytes) -> str:
    """Return ``raw`` as text; what cannot be shown, and what JSON would have to escape, becomes a question mark."""
    text = raw[: 4 * MAX_VALUE_CHARACTERS].decode("latin-1")
    if not text.isprintable():
        text = "".join(character if character.isprintable() else "?" for character in text)
    return text
