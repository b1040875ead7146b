"""A page of a list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """``next_cursor`` is None on the last page. A page may be short, even empty, and not be the last."""

    items: list[T]
    next_cursor: str | None = None
