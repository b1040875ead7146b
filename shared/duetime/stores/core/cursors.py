"""Cursors: places on access paths, as opaque texts. Those of lists of service calls are bound to their query.

The API seals its cursors anyway (``api.cursors``); that keeps a store from reading on at another list's position, of
another tenant above all, whoever calls it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from duetime.domain.errors import InvalidCursor
from duetime.domain.times import MAX_INSTANT, to_milliseconds
from duetime.stores.backend import Backend, Query
from duetime.stores.entity import AccessPath, Entity, Kind, Place, Row
from duetime.stores.port.pages import Page

T = TypeVar("T")

_LAST_NUMBER = to_milliseconds(MAX_INSTANT)
"""Of all kinds: no other number in a place is larger."""
_MARK_CHARACTERS = 16
_TYPES = {Kind.TEXT: str, Kind.WHOLE: int, Kind.INSTANT: int, Kind.BYTES: str}


def cursor_of(place: Place) -> str:
    """Write a place as a cursor, which is ASCII whatever stands in the place, damaged texts too."""
    return json.dumps([part.hex() if isinstance(part, bytes) else part for part in place], separators=(",", ":"))


def place_of(cursor: str, entity: Entity, path: AccessPath) -> Place:
    """Return the place in ``cursor``. Raises ``InvalidCursor`` for what ``cursor_of`` did not make of a place on
    ``path``."""
    kinds = [entity.by_name[name].kind for name in path.order_names]
    try:
        parts = json.loads(cursor)
        if len(parts) == len(kinds):
            return tuple(_part(part, kind) for part, kind in zip(parts, kinds, strict=True))
    except (ValueError, TypeError, RecursionError):
        pass
    raise InvalidCursor("cursor", "the cursor does not belong to this list")


def read_page(backend: Backend, query: Query, cursor: str | None, decode: Callable[[Row], T]) -> Page[T]:
    """Read the page of ``query`` behind ``cursor`` (None: the first). Raises ``InvalidCursor``."""
    after = None if cursor is None else place_of(cursor, query.entity, query.path)
    scan = backend.scan(query._replace(after=after))
    return Page([decode(row) for row in scan.rows], None if scan.end is None else cursor_of(scan.end))


def _part(part: Any, kind: Kind) -> Any:
    if not isinstance(part, _TYPES[kind]) or isinstance(part, bool):
        raise TypeError
    if isinstance(part, int) and not 0 <= part <= _LAST_NUMBER:
        raise ValueError
    return bytes.fromhex(str(part)) if kind is Kind.BYTES else part


def bound_cursor_of(place: Place, query: Sequence[object]) -> str:
    """Write a place as a cursor of one list. ``query``: all that makes it this list, tenant first."""
    return _mark(query) + cursor_of(place)


def bound_place_of(cursor: str, query: Sequence[object], entity: Entity, path: AccessPath) -> Place:
    """Return the place in a cursor of the same list. Raises ``InvalidCursor``."""
    mark = _mark(query)
    return place_of(cursor.removeprefix(mark) if cursor.startswith(mark) else "", entity, path)


def _mark(query: Sequence[object]) -> str:
    text = json.dumps([str(part) if part is not None else None for part in query])
    return hashlib.blake2b(text.encode(), digest_size=_MARK_CHARACTERS // 2).hexdigest()
