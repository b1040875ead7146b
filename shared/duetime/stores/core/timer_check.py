"""What a timer must be that is sent or shown, whichever store it comes from.

A store decodes its rows by types alone. The texts among them are spliced into requests and answers as they are, so a
damaged one would go out as JSON that nobody can read. ``checked`` is the last step of every store's decoding, and
``without_damage`` of what it shows of a row that cannot be decoded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from duetime.domain.json_text import are_headers, is_policy
from duetime.domain.timers import MAX_CALLBACK_TIMEOUT_SECONDS, Timer
from duetime.stores.decoding import DamagedRow, is_text, repaired
from duetime.stores.json_texts import is_json

_FIRING_ID = re.compile(r"[!-~]{1,64}")
"""It is sent as a header."""


def checked(timer: Timer) -> Timer:
    """``timer``, or ``DamagedRow`` when it cannot be sent or shown as it is."""
    for name in _damaged(timer):
        raise DamagedRow(f"{name} is damaged")
    return timer


def without_damage(timer: Timer) -> Timer:
    """``timer`` with nothing in the place of what ``checked`` refuses: it is shown, and never sent."""
    damaged = set(_damaged(timer))
    of_content: dict[str, Any] = dict.fromkeys(damaged & _CLEARED_IN_CONTENT)
    content = replace(timer.content, **of_content)
    cleared: dict[str, Any] = {name: value for name, value in _CLEARED.items() if name in damaged}
    return repaired(replace(timer, content=content, **cleared))


_CLEARED_IN_CONTENT = frozenset({"payload_json", "headers_json", "retry_policy_json", "expire_after_ms"})
_CLEARED: dict[str, Any] = {"firing_id": "", "attempts": 0}


def _damaged(timer: Timer) -> Iterator[str]:
    """The names of the fields that are damaged."""
    content = timer.content
    texts = (
        timer.namespace,
        timer.timer_id,
        content.callback_url,
        content.payload_json,
        content.headers_json,
        content.retry_policy_json,
        content.correlation_id,
        timer.digest,
        timer.attempt_log,
        content.timing_json,
        None if timer.schedule is None or timer.schedule.pause is None else timer.schedule.pause.reason,
        *content.tags,
    )
    for text in texts:
        if text is not None and not text.isascii() and not is_text(text):
            yield "a text"
            break
    if content.payload_json is not None and not is_json(content.payload_json):
        yield "payload_json"
    if content.headers_json is not None and not are_headers(content.headers_json):
        yield "headers_json"
    if content.retry_policy_json is not None and not is_policy(content.retry_policy_json):
        yield "retry_policy_json"
    if timer.attempts < 0:
        yield "attempts"
    if _FIRING_ID.fullmatch(timer.firing_id) is None:
        yield "firing_id"
    if not 1 <= content.callback_timeout_seconds <= MAX_CALLBACK_TIMEOUT_SECONDS:
        yield "callback_timeout_seconds"
    if content.expire_after_ms is not None and content.expire_after_ms < 1:
        yield "expire_after_ms"
    if timer.schedule is not None or timer.schedule_id is not None:
        is_whole = timer.schedule is not None and timer.is_schedule == (content.timing_json is not None)
        if not is_whole or timer.schedule_id is None:
            yield "schedule"
