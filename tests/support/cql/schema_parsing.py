"""CREATE, ALTER and DROP, read."""

from __future__ import annotations

from tests.support.cql.syntax import AlterTable, CreateIndex, CreateKeyspace, CreateTable, Drop, Statement
from tests.support.cql.tokens import Reader


def table_name(reader: Reader) -> tuple[str | None, str]:
    first = reader.name()
    return (first, reader.name()) if reader.take(".") else (None, first)


def parse_create(reader: Reader) -> Statement:
    if reader.take("KEYSPACE"):
        if_not_exists = reader.take("IF", "NOT", "EXISTS")
        name = reader.name()
        reader.expect("WITH")
        _skip_options(reader)
        return CreateKeyspace(name=name, if_not_exists=if_not_exists)
    if reader.take("TABLE"):
        return _create_table(reader)
    reader.take("CUSTOM")
    reader.expect("INDEX")
    if_not_exists = reader.take("IF", "NOT", "EXISTS")
    index = None if reader.sees("ON") else reader.name()
    reader.expect("ON")
    table = table_name(reader)
    reader.expect("(")
    column = reader.name()
    reader.expect(")")
    if reader.take("USING"):
        reader.next()
    if reader.take("WITH"):
        _skip_options(reader)
    return CreateIndex(name=index, table=table, column=column, if_not_exists=if_not_exists)


def _create_table(reader: Reader) -> CreateTable:
    if_not_exists = reader.take("IF", "NOT", "EXISTS")
    table = table_name(reader)
    reader.expect("(")
    columns: list[tuple[str, str, bool]] = []
    partition_key: list[str] = []
    clustering: list[str] = []
    while not reader.take(")"):
        if reader.take("PRIMARY", "KEY"):
            partition_key, clustering = _primary_key(reader)
        else:
            column = _column(reader)
            columns.append(column)
            if reader.take("PRIMARY", "KEY"):
                partition_key = [column[0]]
        if not reader.sees(")"):
            reader.expect(",")
    descending: set[str] = set()
    ttl_seconds = 0
    if reader.take("WITH"):
        while True:
            if reader.take("CLUSTERING", "ORDER", "BY"):
                descending = _clustering_order(reader)
            elif reader.take("DEFAULT_TIME_TO_LIVE"):
                reader.expect("=")
                ttl_seconds = int(reader.next().text)
            else:
                _skip_option(reader)
            if not reader.take("AND"):
                break
    return CreateTable(
        table=table,
        if_not_exists=if_not_exists,
        columns=tuple(columns),
        partition_key=tuple(partition_key),
        clustering=tuple(clustering),
        descending=frozenset(descending),
        default_ttl_seconds=ttl_seconds,
    )


def _primary_key(reader: Reader) -> tuple[list[str], list[str]]:
    reader.expect("(")
    partition_key: list[str] = []
    if reader.take("("):
        partition_key.append(reader.name())
        while reader.take(","):
            partition_key.append(reader.name())
        reader.expect(")")
    else:
        partition_key.append(reader.name())
    clustering: list[str] = []
    while reader.take(","):
        clustering.append(reader.name())
    reader.expect(")")
    return partition_key, clustering


def _clustering_order(reader: Reader) -> set[str]:
    descending: set[str] = set()
    reader.expect("(")
    while not reader.take(")"):
        column = reader.name()
        if reader.take("DESC"):
            descending.add(column)
        else:
            reader.take("ASC")
        reader.take(",")
    return descending


def _column(reader: Reader) -> tuple[str, str, bool]:
    return reader.name(), _type(reader), reader.take("STATIC")


def _type(reader: Reader) -> str:
    name = reader.name()
    if not reader.take("<"):
        return name
    parameters = [_type(reader)]
    while reader.take(","):
        parameters.append(_type(reader))
    reader.expect(">")
    return f"{name}<{', '.join(parameters)}>"


def _skip_options(reader: Reader) -> None:
    _skip_option(reader)
    while reader.take("AND"):
        _skip_option(reader)


def _skip_option(reader: Reader) -> None:
    """``name = value``, which the model has no use for."""
    reader.name()
    reader.expect("=")
    depth = 0
    while True:
        text = reader.next().text
        depth += (text in ("{", "(")) - (text in ("}", ")"))
        if depth == 0:
            return


def parse_alter(reader: Reader) -> AlterTable:
    reader.expect("TABLE")
    table = table_name(reader)
    reader.expect("ADD")
    if_not_exists = reader.take("IF", "NOT", "EXISTS")
    is_in_parentheses = reader.take("(")
    added = [_column(reader)]
    while reader.take(","):
        added.append(_column(reader))
    if is_in_parentheses:
        reader.expect(")")
    return AlterTable(table=table, added=tuple(added), if_not_exists=if_not_exists)


def parse_drop(reader: Reader) -> Drop:
    kind = reader.name()
    if kind not in ("keyspace", "table"):
        reader.fail("expecting KEYSPACE or TABLE")
    if_exists = reader.take("IF", "EXISTS")
    name = (None, reader.name()) if kind == "keyspace" else table_name(reader)
    return Drop(kind=kind, name=name, if_exists=if_exists)
