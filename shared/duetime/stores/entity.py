"""What an entity is: its fields, its key and its access paths. A row is a tuple of values in the order of
``Entity.fields``. A value is of its field's kind, None where an optional one is not given, or ``DAMAGED`` where a
store holds something else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from operator import itemgetter
from typing import Any, Final

Value = Any
Row = tuple[Value, ...]
Key = tuple[Value, ...]
"""The values of ``Entity.key``, in its order."""
Place = tuple[Value, ...]
"""The values of ``AccessPath.order``, in its order: where a row stands on the path."""


class Damaged(Enum):
    DAMAGED = "damaged"


DAMAGED: Final = Damaged.DAMAGED


class Kind(Enum):
    """The type of a value in a row."""

    TEXT = "text"
    """A ``str`` that can be compared and indexed, by its UTF-8 bytes."""
    LONG_TEXT = "long_text"
    """A ``str`` that is only kept: JSON as it was given."""
    WHOLE = "whole"
    """An ``int`` of 64 bits."""
    INSTANT = "instant"
    """An ``int``: milliseconds since 1970."""
    FLAG = "flag"
    """A ``bool``."""
    BYTES = "bytes"
    TEXTS = "texts"
    """A tuple of ``str`` that an access path can find the row by, one by one."""


LONG: Final = 8


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    kind: Kind
    is_optional: bool = False
    length: int = 255
    """The most characters of a TEXT, the most bytes of BYTES; LONG for a WHOLE that needs 64 bits."""
    is_free: bool = False
    """Of a TEXT: clients choose it, so it may end in blanks."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AccessPath:
    """An order in which rows can be scanned: those with the same values of ``by``, sorted by ``order``.

    A ``-`` before a field of ``order`` is descending. A row is on the path when it has a value in every field of
    ``present``, none in those of ``absent``, and the values of ``where``. ``is_unique``: no two rows have the same
    values of ``by`` and ``order``. ``by`` may name one field of TEXTS: the row is then found by each of its texts.
    """

    name: str
    by: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    present: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    where: Mapping[str, Value] = field(default_factory=dict)
    is_unique: bool = False

    @property
    def order_names(self) -> tuple[str, ...]:
        return tuple(name.removeprefix("-") for name in self.order)

    @property
    def is_descending(self) -> tuple[bool, ...]:
        return tuple(name.startswith("-") for name in self.order)


@dataclass(frozen=True, kw_only=True, eq=False)
class Entity:
    """``name`` is that of its table or collection, which may hold other entities, too.

    ``expires``: the field with the time at which a row may be removed by the database itself. ``large``: the field
    that may be long, which pages are bounded by. ``is_lease``: its times are the database's, and conditions of writes
    are judged by that clock. ``part_of``: its rows go with the row of that entity whose key
    their own begins with. ``row_type`` tells it from the other entities of its table.
    ``has_iso_times``: SQL keeps instants as texts (``domain.times.format_instant``), as the seed has them.
    """

    name: str
    table: str
    key: tuple[str, ...]
    fields: tuple[Field, ...]
    paths: tuple[AccessPath, ...] = ()
    expires: str | None = None
    large: str | None = None
    is_lease: bool = False
    part_of: str | None = None
    has_iso_times: bool = False
    row_type: int | None = None

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.fields)

    @cached_property
    def places(self) -> dict[str, int]:
        """Where in a row each field stands."""
        return {name: place for place, name in enumerate(self.names)}

    @cached_property
    def by_name(self) -> dict[str, Field]:
        return {each.name: each for each in self.fields}

    @cached_property
    def key_of(self) -> Callable[[Row], Key]:
        """From a row to its key."""
        places = [self.places[name] for name in self.key]
        if len(places) == 1:
            return lambda row: (row[places[0]],)
        return itemgetter(*places)

    def place_of(self, path: AccessPath, row: Row) -> Place:
        return tuple(row[self.places[name]] for name in path.order_names)
