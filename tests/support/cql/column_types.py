"""The types of columns: the driver's own, which serialise what it sends and read what it is answered."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from cassandra import InvalidRequest, cqltypes

from tests.support.cql.syntax import Collection, Literal

PROTOCOL_VERSION = 5
_SIMPLE = {
    "ascii": cqltypes.AsciiType,
    "text": cqltypes.UTF8Type,
    "varchar": cqltypes.UTF8Type,
    "bigint": cqltypes.LongType,
    "int": cqltypes.Int32Type,
    "smallint": cqltypes.ShortType,
    "tinyint": cqltypes.ByteType,
    "boolean": cqltypes.BooleanType,
    "blob": cqltypes.BytesType,
    "timestamp": cqltypes.DateType,
    "uuid": cqltypes.UUIDType,
    "timeuuid": cqltypes.TimeUUIDType,
    "double": cqltypes.DoubleType,
    "float": cqltypes.FloatType,
}
_COLLECTIONS = {"map": cqltypes.MapType, "set": cqltypes.SetType, "list": cqltypes.ListType}
_LITERALS = {
    "string": {"ascii", "text", "varchar", "timestamp"},
    "integer": {"bigint", "int", "smallint", "tinyint", "timestamp", "double", "float"},
    "float": {"double", "float"},
    "boolean": {"boolean"},
    "blob": {"blob"},
    "uuid": {"uuid", "timeuuid"},
}


def type_of(name: str) -> Any:
    """The driver's class for ``text``, ``map<text, int>``, ``frozen<set<text>>``."""
    name = name.strip()
    if name in _SIMPLE:
        return _SIMPLE[name]
    outer, _, inner = name.partition("<")
    inner = inner.removesuffix(">")
    if outer == "frozen":
        return type_of(inner)
    if outer not in _COLLECTIONS:
        raise InvalidRequest(f"Unknown type {name}")
    parameters = [type_of(each) for each in _split(inner)]
    return _COLLECTIONS[outer].apply_parameters(parameters)


def _split(inner: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for at, character in enumerate(inner):
        depth += (character == "<") - (character == ">")
        if character == "," and depth == 0:
            parts.append(inner[start:at])
            start = at + 1
    return [*parts, inner[start:]]


def is_collection(type_name: str) -> bool:
    """Of several cells, as a collection is that is not frozen."""
    return type_name.partition("<")[0] in _COLLECTIONS


def serialised(cql_type: Any, value: Any) -> bytes:
    found: bytes = cql_type.to_binary(value, PROTOCOL_VERSION)
    return found


def read(cql_type: Any, data: bytes | None) -> Any:
    return None if data is None else cql_type.from_binary(data, PROTOCOL_VERSION)


def checked(column: str, type_name: str, data: bytes) -> Any:
    """The value of bound bytes. Raises ``InvalidRequest`` for bytes that are none of the type."""
    cql_type = type_of(type_name)
    widths = {
        "bigint": 8,
        "timestamp": 8,
        "double": 8,
        "int": 4,
        "float": 4,
        "uuid": 16,
        "timeuuid": 16,
        "boolean": 1,
    }
    width = widths.get(type_name)
    if width is not None and len(data) != width:
        raise InvalidRequest(f"Expected {width} bytes for a {type_name} of {column} ({len(data)})")
    return read(cql_type, data)


def literal_value(column: str, type_name: str, literal: Literal) -> Any:
    """Raises ``InvalidRequest``: 'Invalid STRING constant (x) for "c" of type int'."""
    if type_name.startswith("frozen<"):
        type_name = type_name[7:-1]
    if type_name not in _LITERALS[literal.kind]:
        raise InvalidRequest(
            f'Invalid {literal.kind.upper()} constant ({literal.value}) for "{column}" of type {type_name}'
        )
    bits = {"bigint": 64, "int": 32, "smallint": 16, "tinyint": 8}.get(type_name)
    if bits is not None and not -(2 ** (bits - 1)) <= literal.value < 2 ** (bits - 1):
        raise InvalidRequest(f'Unable to make {type_name} from "{literal.value}"')
    if type_name == "timestamp" and literal.kind == "string":
        raise NotImplementedError("the model reads no dates; bind them")
    if isinstance(literal.value, UUID) and type_name == "timeuuid" and literal.value.version != 1:
        raise InvalidRequest("TimeUUID supports only version 1 UUIDs")
    return literal.value


def collection_value(column: str, type_name: str, term: Collection) -> Any:
    outer, _, inner = type_name.removeprefix("frozen<").partition("<")
    kinds = {term.kind, "set"} if term.kind == "map" and not term.members else {term.kind}
    if outer not in kinds:
        raise InvalidRequest(f"Invalid {term.kind} literal for {column} of type {type_name}")
    parts = [part.strip() for part in _split(inner.rstrip(">") if "<" not in inner else inner.removesuffix(">"))]
    if outer == "map":
        return {_member(column, parts[0], key): _member(column, parts[1], value) for key, value in term.members}
    members = [_member(column, parts[0], member) for member in term.members]
    return set(members) if outer == "set" else members


def _member(column: str, type_name: str, term: Any) -> Any:
    if not isinstance(term, Literal):
        raise NotImplementedError("the model has literals alone within a collection")
    if term.kind == "null":
        raise InvalidRequest("null is not supported inside collections")
    return literal_value(column, type_name, term)
