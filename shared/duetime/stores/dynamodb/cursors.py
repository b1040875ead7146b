"""Cursors: the position after which a page goes on, as compact JSON. The API seals them."""

from __future__ import annotations

import json
from typing import Any

from duetime.domain.errors import InvalidCursor


def write_cursor(*position: str | int) -> str:
    return json.dumps(position, ensure_ascii=False, separators=(",", ":"))


def read_cursor(cursor: str, *types: type) -> list[Any]:
    """The position in ``cursor``; raises ``InvalidCursor`` unless it has values of exactly these types."""
    try:
        position = json.loads(cursor)
    except ValueError:
        position = None
    if not isinstance(position, list) or [type(value) for value in position] != list(types):
        raise InvalidCursor("cursor", "is not a cursor of this list")
    return position
