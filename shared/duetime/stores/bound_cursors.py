"""Cursors of a store's lists: a position, bound to the query that it belongs to.

The API seals its cursors anyway (``api.cursors``); this keeps a store from reading on at another list's position,
of another tenant above all, whoever calls it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from duetime.domain.errors import InvalidCursor

Position = list[str]
_MARK_CHARACTERS = 16


def write_cursor(position: Sequence[str], query: Sequence[object]) -> str:
    """``query``: all that makes the list this one, tenant first."""
    return _mark(query) + json.dumps(position, separators=(",", ":"))


def read_cursor(cursor: str, query: Sequence[object], *, parts: int) -> Position:
    """The position of ``parts`` texts that ``write_cursor`` wrote for the same query; else ``InvalidCursor``."""
    mark = _mark(query)
    try:
        position = json.loads(cursor[_MARK_CHARACTERS:])
    except ValueError:
        position = None
    is_position = isinstance(position, list) and all(isinstance(part, str) for part in position)
    if not cursor.startswith(mark) or not is_position or len(position) != parts:
        raise InvalidCursor("cursor", "the cursor does not belong to this list")
    texts: Position = position
    return texts


def _mark(query: Sequence[object]) -> str:
    text = json.dumps([str(part) if part is not None else None for part in query])
    return hashlib.blake2b(text.encode(), digest_size=_MARK_CHARACTERS // 2).hexdigest()
