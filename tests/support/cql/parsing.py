"""The statements of CQL that Duetime uses, read (https://cassandra.apache.org/doc, CQL: "Data definition", "DML")."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from uuid import UUID

from tests.support.cql.schema_parsing import parse_alter, parse_create, parse_drop, table_name
from tests.support.cql.syntax import (
    Call,
    Collection,
    Condition,
    Delete,
    Insert,
    Literal,
    Marker,
    Relation,
    Select,
    Selector,
    Statement,
    Term,
    Truncate,
    Update,
    Use,
)
from tests.support.cql.tokens import Reader

_COMPARISONS = ("=", "!=", "<=", ">=", "<", ">")


@lru_cache(maxsize=4096)
def parse(cql: str) -> tuple[Statement, int]:
    """The statement and the number of its bind markers. Raises ``SyntaxException``."""
    reader = Reader(cql)
    word = reader.peek().text.upper()
    parsers: dict[str, Callable[[Reader], Statement]] = {
        "SELECT": _select,
        "INSERT": _insert,
        "UPDATE": _update,
        "DELETE": _delete,
        "CREATE": parse_create,
        "ALTER": parse_alter,
        "DROP": parse_drop,
        "TRUNCATE": _truncate,
        "USE": _use,
    }
    if word not in parsers:
        reader.fail("expecting a statement")
    reader.next()
    statement: Statement = parsers[word](reader)
    reader.end()
    return statement, reader.markers


def _use(reader: Reader) -> Use:
    return Use(keyspace=reader.name())


def _truncate(reader: Reader) -> Truncate:
    reader.take("TABLE")
    return Truncate(table=table_name(reader))


def _select(reader: Reader) -> Select:
    is_distinct = reader.take("DISTINCT")
    selectors: tuple[Selector, ...] | None = None
    if not reader.take("*"):
        found = [_selector(reader)]
        while reader.take(","):
            found.append(_selector(reader))
        selectors = tuple(found)
    reader.expect("FROM")
    table = table_name(reader)
    where = _where(reader) if reader.take("WHERE") else ()
    order_by: list[tuple[str, bool]] = []
    if reader.take("ORDER", "BY"):
        while True:
            column = reader.name()
            is_descending = reader.take("DESC")
            if not is_descending:
                reader.take("ASC")
            order_by.append((column, is_descending))
            if not reader.take(","):
                break
    per_partition = _term(reader) if reader.take("PER", "PARTITION", "LIMIT") else None
    limit = _term(reader) if reader.take("LIMIT") else None
    return Select(
        table=table,
        selectors=selectors,
        where=where,
        order_by=tuple(order_by),
        limit=limit,
        per_partition_limit=per_partition,
        is_distinct=is_distinct,
        allows_filtering=reader.take("ALLOW", "FILTERING"),
    )


def _selector(reader: Reader) -> Selector:
    if reader.peek(1).text != "(":
        column = reader.name()
        return Selector(column, alias=_alias(reader))
    function = reader.name()
    reader.expect("(")
    arguments: list[str] = []
    while not reader.take(")"):
        if reader.take("*") or reader.take(","):
            continue
        argument = reader.name()
        if reader.take("(", ")"):
            argument += "()"
        arguments.append(argument)
    column = arguments[0] if len(arguments) == 1 else None
    return Selector(column, function, _alias(reader), tuple(arguments))


def _alias(reader: Reader) -> str | None:
    return reader.name() if reader.take("AS") else None


def _insert(reader: Reader) -> Insert:
    reader.expect("INTO")
    table = table_name(reader)
    columns = _names(reader)
    reader.expect("VALUES")
    values = _terms(reader)
    if len(values) != len(columns):
        reader.fail("unmatched column names/values")
    if_not_exists = reader.take("IF", "NOT", "EXISTS")
    ttl, timestamp = _using(reader)
    return Insert(
        table=table, columns=columns, values=values, if_not_exists=if_not_exists, ttl=ttl, timestamp=timestamp
    )


def _update(reader: Reader) -> Update:
    table = table_name(reader)
    ttl, timestamp = _using(reader)
    reader.expect("SET")
    assignments = [_assignment(reader)]
    while reader.take(","):
        assignments.append(_assignment(reader))
    reader.expect("WHERE")
    where = _where(reader)
    if_exists, conditions = _if(reader)
    return Update(
        table=table,
        assignments=tuple(assignments),
        where=where,
        conditions=conditions,
        if_exists=if_exists,
        ttl=ttl,
        timestamp=timestamp,
    )


def _assignment(reader: Reader) -> tuple[str, Term]:
    column = reader.name()
    if not reader.take("="):
        raise NotImplementedError("the model has no changes of one member of a collection")
    if reader.peek().kind in ("word", "quoted") and reader.peek(1).text in ("+", "-"):
        raise NotImplementedError("the model has no counters and no additions to a collection")
    return column, _term(reader)


def _delete(reader: Reader) -> Delete:
    columns: tuple[str, ...] = ()
    if not reader.sees("FROM"):
        found = [reader.name()]
        while reader.take(","):
            found.append(reader.name())
        columns = tuple(found)
    reader.expect("FROM")
    table = table_name(reader)
    _, timestamp = _using(reader)
    reader.expect("WHERE")
    where = _where(reader)
    if_exists, conditions = _if(reader)
    return Delete(
        table=table,
        columns=columns,
        where=where,
        conditions=conditions,
        if_exists=if_exists,
        timestamp=timestamp,
    )


def _using(reader: Reader) -> tuple[Term | None, Term | None]:
    ttl: Term | None = None
    timestamp: Term | None = None
    if reader.take("USING"):
        while True:
            if reader.take("TTL"):
                ttl = _term(reader)
            else:
                reader.expect("TIMESTAMP")
                timestamp = _term(reader)
            if not reader.take("AND"):
                break
    return ttl, timestamp


def _if(reader: Reader) -> tuple[bool, tuple[Condition, ...]]:
    if not reader.take("IF"):
        return False, ()
    if reader.take("EXISTS"):
        return True, ()
    conditions = []
    while True:
        column = reader.name()
        if reader.take("IN"):
            conditions.append(Condition(column, "IN", _terms(reader)))
        else:
            conditions.append(Condition(column, _comparison(reader), (_term(reader),)))
        if not reader.take("AND"):
            return False, tuple(conditions)


def _where(reader: Reader) -> tuple[Relation, ...]:
    relations = [_relation(reader)]
    while reader.take("AND"):
        relations.append(_relation(reader))
    return tuple(relations)


def _relation(reader: Reader) -> Relation:
    if reader.take("TOKEN"):
        columns = _names(reader)
        return Relation(columns, _comparison(reader), (_term(reader),), is_token=True)
    if reader.sees("("):
        columns = _names(reader)
        if reader.take("IN"):
            reader.expect("(")
            tuples = [_terms(reader)]
            while reader.take(","):
                tuples.append(_terms(reader))
            reader.expect(")")
            return Relation(columns, "IN", tuple(tuples), is_tuple=True)
        operator = _comparison(reader)
        values = _terms(reader)
        if len(values) != len(columns):
            reader.fail("expected as many values as columns")
        return Relation(columns, operator, values, is_tuple=True)
    column = reader.name()
    if reader.take("IN"):
        if reader.sees("("):
            return Relation((column,), "IN", _terms(reader))
        return Relation((column,), "IN", (_term(reader),), is_bare_in=True)
    return Relation((column,), _comparison(reader), (_term(reader),))


def _comparison(reader: Reader) -> str:
    for operator in _COMPARISONS:
        if reader.take(operator):
            return operator
    return reader.fail("expecting a comparison")


def _names(reader: Reader) -> tuple[str, ...]:
    reader.expect("(")
    names = [reader.name()]
    while reader.take(","):
        names.append(reader.name())
    reader.expect(")")
    return tuple(names)


def _terms(reader: Reader) -> tuple[Term, ...]:
    reader.expect("(")
    if reader.take(")"):
        return ()
    terms = [_term(reader)]
    while reader.take(","):
        terms.append(_term(reader))
    reader.expect(")")
    return tuple(terms)


def _term(reader: Reader) -> Term:
    token = reader.next()
    text = token.text
    if token.kind == "marker":
        reader.markers += 1
        return Marker(reader.markers - 1, None if text == "?" else text[1:].lower())
    if token.kind == "string":
        return Literal("string", text[2:-2] if text.startswith("$$") else text[1:-1].replace("''", "'"))
    if token.kind in ("integer", "float"):
        return Literal(token.kind, int(text) if token.kind == "integer" else float(text))
    if token.kind == "blob":
        return Literal("blob", bytes.fromhex(text[2:]))
    if token.kind == "uuid":
        return Literal("uuid", UUID(text))
    if text in ("{", "["):
        return _collection(reader, text)
    if token.kind == "word":
        if text.upper() in ("TRUE", "FALSE"):
            return Literal("boolean", text.upper() == "TRUE")
        if text.upper() == "NULL":
            return Literal("null", None)
        if reader.sees("("):
            return Call(text.lower(), _terms(reader))
    return reader.fail(f"expecting a value, not {text!r}")


def _collection(reader: Reader, opening: str) -> Collection:
    closing = "]" if opening == "[" else "}"
    kind = "list" if opening == "[" else "set"
    members: list[Term | tuple[Term, Term]] = []
    while not reader.take(closing):
        member = _term(reader)
        if opening == "{" and reader.take(":"):
            kind = "map"
            members.append((member, _term(reader)))
        else:
            members.append(member)
        if not reader.sees(closing):
            reader.expect(",")
    return Collection("map" if opening == "{" and not members else kind, tuple(members))
