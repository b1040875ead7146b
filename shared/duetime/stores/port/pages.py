"""A page of a list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """``next_cursor`` is None on the last page. A page may be short, even empty, and not be the last."""

    items: list[T]
    next_cursor: str | None = None


PAGE_BYTES: Final = 8 * 1024 * 1024
"""How much of payloads a page of timers holds; in characters where a database tells those without reading them all.

A payload may have 256 KiB: 500 of them would be 125 MiB. A store looks at sizes before it transfers what is large, or
reads row by row, and ends the page where it is full.
"""
