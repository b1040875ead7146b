"""What a timer must be that is sent or shown, whichever store it comes from.

A store decodes its rows by types alone. The texts among them are spliced into requests and answers as they are, so a
damaged one would go out as JSON that nobody can read. ``checked`` is the last step of every store's decoding, and
``without_damage`` of what it shows of a row that cannot be decoded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache
from typing import Any, Never

from duetime.domain.retry import read_retry_policy
from duetime.domain.timers import MAX_CALLBACK_TIMEOUT_SECONDS, Timer

_FIRING_ID = re.compile(r"[!-~]{1,64}")
"""It is sent as a header."""
_MAX_CACHED_CHARACTERS = 4096


class DamagedTimer(ValueError):
    """The message names a field, and quotes nothing of it."""


def checked(timer: Timer) -> Timer:
    """``timer``, or ``DamagedTimer`` when it cannot be sent or shown as it is."""
    for name in _damaged(timer):
        raise DamagedTimer(f"{name} is damaged")
    return timer


def without_damage(timer: Timer) -> Timer:
    """``timer`` with nothing in the place of what ``checked`` refuses: it is shown, and never sent."""
    damaged = set(_damaged(timer))
    if not damaged:
        return timer
    of_content: dict[str, Any] = dict.fromkeys(damaged & _CLEARED_IN_CONTENT)
    content = replace(timer.content, **of_content)
    cleared: dict[str, Any] = {name: value for name, value in _CLEARED.items() if name in damaged}
    return replace(timer, content=content, **cleared)


_CLEARED_IN_CONTENT = frozenset({"payload_json", "headers_json", "retry_policy_json", "expire_after_ms"})
_CLEARED: dict[str, Any] = {"firing_id": "", "attempts": 0}


def _damaged(timer: Timer) -> Iterator[str]:
    """The names of the fields that are damaged."""
    content = timer.content
    if content.payload_json is not None and not _is_json(content.payload_json):
        yield "payload_json"
    if content.headers_json is not None and not _holds(_are_headers, content.headers_json):
        yield "headers_json"
    if content.retry_policy_json is not None and not _holds(_is_policy, content.retry_policy_json):
        yield "retry_policy_json"
    if timer.attempts < 0:
        yield "attempts"
    if _FIRING_ID.fullmatch(timer.firing_id) is None:
        yield "firing_id"
    if not 1 <= content.callback_timeout_seconds <= MAX_CALLBACK_TIMEOUT_SECONDS:
        yield "callback_timeout_seconds"
    if content.expire_after_ms is not None and content.expire_after_ms < 1:
        yield "expire_after_ms"


def _refuse_constant(name: str) -> Never:
    raise ValueError(f"{name} is not JSON")


# Digits stay text: there is nothing to be done with numbers, and long ones are slow to convert.
_decode_json = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_refuse_constant).decode


def _is_json(text: str) -> bool:
    try:
        _decode_json(text)
    except ValueError:
        return False
    except RecursionError:
        # It was accepted on a stack that was less full. A thread's own is as good as empty.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(_is_json_at_all, text).result()
    return True


def _is_json_at_all(text: str) -> bool:
    try:
        _decode_json(text)
    except (ValueError, RecursionError):
        return False
    return True


def _are_headers(text: str) -> bool:
    try:
        headers = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(headers, dict) and all(isinstance(value, str) for value in headers.values())


def _is_policy(text: str) -> bool:
    try:
        read_retry_policy(text)
    except ValueError:
        return False
    return True


@lru_cache(maxsize=1024)
def _holds_cached(rule: Callable[[str], bool], text: str) -> bool:
    return rule(text)


def _holds(rule: Callable[[str], bool], text: str) -> bool:
    """Whether ``rule`` holds for ``text``. Many timers have the same headers, and the same policy."""
    return _holds_cached(rule, text) if len(text) <= _MAX_CACHED_CHARACTERS else rule(text)
