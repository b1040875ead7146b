"""JSON that is kept as the text that it was: whether it still is what it was accepted as."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, Never

from duetime.domain.retry import read_retry_policy

_MAX_CACHED_CHARACTERS = 4096


def is_json(text: str) -> bool:
    """Tell whether ``text`` is a JSON value (NaN is not)."""
    try:
        _decode(text)
    except ValueError:
        return False
    except RecursionError:
        # It was accepted on a stack that was less full. A thread's own is as good as empty.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(_is_json_at_all, text).result()
    return True


def is_object(text: str) -> bool:
    """Tell whether ``text`` is a JSON object."""
    return is_json(text) and text.lstrip().startswith("{")


def are_headers(text: str) -> bool:
    """Tell whether ``text`` is a JSON object of strings."""
    return _holds(_are_headers, text)


def is_policy(text: str) -> bool:
    """Tell whether ``text`` is a retry policy (``domain.retry.read_retry_policy``)."""
    return _holds(_is_policy, text)


def _refuse_constant(name: str) -> Never:
    raise ValueError(f"{name} is not JSON")


# Digits stay text: there is nothing to be done with numbers, and long ones are slow to convert.
_decode = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_refuse_constant).decode


def _is_json_at_all(text: str) -> bool:
    try:
        _decode(text)
    except (ValueError, RecursionError):
        return False
    return True


def _are_headers(text: str) -> bool:
    try:
        headers: Any = json.loads(text)
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
    """Tell whether ``rule`` holds for ``text``. Cached: many timers have the same headers and policy."""
    return _holds_cached(rule, text) if len(text) <= _MAX_CACHED_CHARACTERS else rule(text)
