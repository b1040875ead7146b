"""Outcomes with the attempt log that an engine writes beside them."""

from __future__ import annotations

from dataclasses import replace

from duetime.delivery.port import CallbackResult
from duetime.domain.attempts import AttemptOutcome
from duetime.domain.outcomes import Outcome
from duetime.domain.timers import TimerState
from duetime.engine.response.attempt_log import log_attempt
from duetime.engine.response.classify import classify
from duetime.engine.settings import EngineSettings
from tests.support.clock import NOW

PLAIN_HEAD = (
    b"HTTP/1.1 200 OK\r\n",
    b"Content-Type: application/json\r\n",
    b"Content-Length: 11\r\n",
    b"Server: nginx/1.27.3\r\n",
    b"Date: Sun, 20 Dec 2026 15:30:00 GMT\r\n",
    b"Connection: keep-alive\r\n",
)


def logged(outcome: Outcome, *, status: int = 200, body: bytes = b'{"ok":true}') -> Outcome:
    """``outcome``, brought about by an answer as servers usually give it."""
    result = CallbackResult(1, status, body, None, None, "", 0.012, head=PLAIN_HEAD)
    log = log_attempt(
        outcome.timer,
        classify(result, now=NOW),
        result,
        _became(outcome),
        fired_at=NOW,
        first_attempt_at=NOW,
        excerpt_bytes=EngineSettings().attempt_excerpt_bytes,
    )
    return replace(outcome, attempt_log=log)


def _became(outcome: Outcome) -> AttemptOutcome:
    if outcome.failure is None:
        return AttemptOutcome.FIRED if outcome.state is TimerState.FIRED else AttemptOutcome.RESCHEDULED
    return AttemptOutcome.FAILED if outcome.state is TimerState.FAILED else AttemptOutcome.RETRY
