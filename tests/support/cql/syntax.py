"""Statements of CQL as values: what ``parsing`` makes and the rest of the model carries out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class Marker:
    """A ``?`` or ``:name``; ``index`` counts them in the order of the text."""

    index: int
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Literal:
    """``kind``: string, integer, float, boolean, blob, uuid, null."""

    kind: str
    value: Any


@dataclass(frozen=True, slots=True)
class Collection:
    """``kind``: list, set, map; members of a map are pairs. ``{}`` is a map."""

    kind: str
    members: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Call:
    function: str
    arguments: tuple[Any, ...] = ()


Term: TypeAlias = Marker | Literal | Collection | Call


@dataclass(frozen=True, slots=True)
class Relation:
    """``(a, b) > (1, 2)`` has two columns and two values. ``IN``: ``values`` are its members, or one marker.

    ``is_token``: the columns stand in ``token(...)``.
    """

    columns: tuple[str, ...]
    operator: str
    values: tuple[Any, ...]
    is_token: bool = False
    is_tuple: bool = False
    is_bare_in: bool = False
    """``column IN ?``: the one value is a list of them."""


@dataclass(frozen=True, slots=True)
class Condition:
    column: str
    operator: str
    values: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class Selector:
    """``function`` None: the column itself."""

    column: str | None
    function: str | None = None
    alias: str | None = None
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Select:
    table: tuple[str | None, str]
    selectors: tuple[Selector, ...] | None
    where: tuple[Relation, ...] = ()
    order_by: tuple[tuple[str, bool], ...] = ()
    """(column, descending)"""
    limit: Term | None = None
    per_partition_limit: Term | None = None
    is_distinct: bool = False
    allows_filtering: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Insert:
    table: tuple[str | None, str]
    columns: tuple[str, ...]
    values: tuple[Term, ...]
    if_not_exists: bool = False
    ttl: Term | None = None
    timestamp: Term | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    table: tuple[str | None, str]
    assignments: tuple[tuple[str, Term], ...]
    where: tuple[Relation, ...]
    conditions: tuple[Condition, ...] = ()
    if_exists: bool = False
    ttl: Term | None = None
    timestamp: Term | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    table: tuple[str | None, str]
    columns: tuple[str, ...]
    where: tuple[Relation, ...]
    conditions: tuple[Condition, ...] = ()
    if_exists: bool = False
    timestamp: Term | None = None


Mutation: TypeAlias = Insert | Update | Delete


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateKeyspace:
    name: str
    if_not_exists: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTable:
    table: tuple[str | None, str]
    if_not_exists: bool
    columns: tuple[tuple[str, str, bool], ...]
    """(name, type, static)"""
    partition_key: tuple[str, ...]
    clustering: tuple[str, ...]
    descending: frozenset[str]
    default_ttl_seconds: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateIndex:
    name: str | None
    table: tuple[str | None, str]
    column: str
    if_not_exists: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterTable:
    table: tuple[str | None, str]
    added: tuple[tuple[str, str, bool], ...]
    if_not_exists: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """``kind``: keyspace or table."""

    kind: str
    name: tuple[str | None, str]
    if_exists: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncate:
    table: tuple[str | None, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    keyspace: str


Statement: TypeAlias = (
    Select
    | Insert
    | Update
    | Delete
    | CreateKeyspace
    | CreateTable
    | CreateIndex
    | AlterTable
    | Drop
    | Truncate
    | Use
)
