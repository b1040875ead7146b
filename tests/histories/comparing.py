"""What differs between two histories of one plan, beyond what an engine is free to do."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from tests.histories.playing import History

TOLERANCE_SECONDS = 1.0
"""The precision that is promised: within it an engine may choose."""
_MISSING = "(nothing)"


def differences(before: History, after: History, *, with_rows: bool = True) -> list[str]:
    """One line for each, with its path. Of a run with faults only what no fault may change: what became of each timer
    and call, and that each receiver that was called is called.

    ``with_rows`` False: what is stored has another shape now.
    """
    if before["hasFaults"]:
        return list(_compare(_ends(before), _ends(after), "ends"))
    parts = ["responses", "requests", "timers", "calls", *(["rows"] if with_rows else [])]
    return [line for part in parts for line in _compare(before[part], after[part], part)]


def _ends(history: History) -> dict[str, Any]:
    return {
        "timers": {
            f"{namespace}/{timer['id']}": timer["state"]
            for namespace, timers in history["timers"].items()
            for timer in timers
        },
        "calls": {call["id"]: call.get("status", "gone") for call in history["calls"]},
    }


def _compare(before: Any, after: Any, path: str) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        for name in sorted(before.keys() | after.keys()):
            yield from _compare(before.get(name, _MISSING), after.get(name, _MISSING), f"{path}.{name}")
    elif isinstance(before, list) and isinstance(after, list):
        if len(before) != len(after):
            yield f"{path}: {len(before)} items, now {len(after)}"
        for number, (old, new) in enumerate(zip(before, after, strict=False)):
            yield from _compare(old, new, f"{path}[{number}]")
    elif not _is_same(before, after):
        yield f"{path}: {before!r}, now {after!r}"


def _is_same(before: Any, after: Any) -> bool:
    if before == after:
        return True
    old, new = _seconds(before), _seconds(after)
    return old is not None and new is not None and abs(old - new) <= TOLERANCE_SECONDS


def _seconds(value: Any) -> float | None:
    """Of a time, as text or in milliseconds since 1970."""
    if isinstance(value, str) and len(value) >= len("2027-01-01T00:00:00Z"):
        try:
            return datetime.fromisoformat(value).timestamp()
        except ValueError:
            return None
    is_milliseconds = isinstance(value, int) and value > 1_700_000_000_000
    return value / 1000 if is_milliseconds else None
