"""Keyspaces and tables: how they come to be, and the system tables that tell of them."""

from __future__ import annotations

from typing import Any

from cassandra import AlreadyExists, InvalidRequest

from tests.support.cql import column_types, syntax
from tests.support.cql.tables import Cell, Column, Table

_TIME_US = 1
_SYSTEM = {
    ("system", "local"): (
        [("key", "text")],
        [],
        [("cluster_name", "text"), ("data_center", "text"), ("release_version", "text"), ("partitioner", "text")],
    ),
    ("system_schema", "keyspaces"): ([("keyspace_name", "text")], [], [("durable_writes", "boolean")]),
    ("system_schema", "tables"): (
        [("keyspace_name", "text")],
        [("table_name", "text")],
        [("default_time_to_live", "int")],
    ),
    ("system_schema", "columns"): (
        [("keyspace_name", "text")],
        [("table_name", "text"), ("column_name", "text")],
        [("type", "text"), ("kind", "text")],
    ),
}


class Schema:
    def __init__(self) -> None:
        self.keyspaces: dict[str, dict[str, Table]] = {"system": {}, "system_schema": {}}
        for (keyspace, name), (partition, clustering, regular) in _SYSTEM.items():
            columns = {
                each: Column(each, type_name, kind)
                for kind, group in (
                    ("partition_key", partition),
                    ("clustering", clustering),
                    ("regular", regular),
                )
                for each, type_name in group
            }
            self.keyspaces[keyspace][name] = Table(keyspace, name, columns)
        self._tell(
            ("system", "local"),
            ("local",),
            (),
            {
                "cluster_name": "model",
                "data_center": "datacenter1",
                "release_version": "4.1.0",
                "partitioner": "org.apache.cassandra.dht.Murmur3Partitioner",
            },
        )

    def table(self, name: tuple[str | None, str], keyspace: str | None) -> Table:
        """Raises ``InvalidRequest`` where there is none."""
        where = name[0] or keyspace
        if where is None:
            raise InvalidRequest(
                "No keyspace has been specified. USE a keyspace, or explicitly specify keyspace.tablename"
            )
        if where not in self.keyspaces:
            raise InvalidRequest(f"keyspace {where} does not exist")
        found = self.keyspaces[where].get(name[1])
        if found is None:
            raise InvalidRequest(f"table {name[1]} does not exist")
        return found

    def change(self, statement: Any, keyspace: str | None) -> None:
        if isinstance(statement, syntax.CreateKeyspace):
            self._create_keyspace(statement)
        elif isinstance(statement, syntax.CreateTable):
            self._create_table(statement, keyspace)
        elif isinstance(statement, syntax.AlterTable):
            self._alter_table(statement, keyspace)
        elif isinstance(statement, syntax.CreateIndex):
            table = self.table(statement.table, keyspace)
            if statement.column not in table.columns:
                raise InvalidRequest(f"Undefined column name {statement.column} in table {table.name}")
            if statement.column in table.indexed and not statement.if_not_exists:
                raise InvalidRequest(f"Index {statement.name} already exists")
            table.indexed.add(statement.column)
        elif isinstance(statement, syntax.Truncate):
            self.table(statement.table, keyspace).partitions.clear()
        elif isinstance(statement, syntax.Drop):
            self._drop(statement, keyspace)
        elif isinstance(statement, syntax.Use):
            self.check_keyspace(statement.keyspace)

    def check_keyspace(self, name: str) -> None:
        if name not in self.keyspaces:
            raise InvalidRequest(f"Keyspace '{name}' does not exist")

    def _create_keyspace(self, statement: syntax.CreateKeyspace) -> None:
        if statement.name in self.keyspaces:
            if statement.if_not_exists:
                return
            raise AlreadyExists(statement.name, None)
        self.keyspaces[statement.name] = {}
        self._tell(("system_schema", "keyspaces"), (statement.name,), (), {"durable_writes": True})

    def _create_table(self, statement: syntax.CreateTable, keyspace: str | None) -> None:
        where = statement.table[0] or keyspace
        if where is None:
            raise InvalidRequest("No keyspace has been specified.")
        self.check_keyspace(where)
        name = statement.table[1]
        if name in self.keyspaces[where]:
            if statement.if_not_exists:
                return
            raise AlreadyExists(where, name)
        types = {column: (type_name, is_static) for column, type_name, is_static in statement.columns}
        if not statement.partition_key:
            raise InvalidRequest("No PRIMARY KEY specified for table")
        columns: dict[str, Column] = {}
        for kind, names in (("partition_key", statement.partition_key), ("clustering", statement.clustering)):
            for each in names:
                if each not in types:
                    raise InvalidRequest(f"Unknown column '{each}' referenced in PRIMARY KEY")
                type_name, is_static = types.pop(each)
                if is_static or column_types.is_collection(type_name):
                    raise InvalidRequest(f"Invalid column '{each}' in PRIMARY KEY")
                columns[each] = Column(each, type_name, kind, each in statement.descending)
        if statement.descending - set(statement.clustering):
            raise InvalidRequest("Missing or unknown columns in CLUSTERING ORDER BY")
        for each, (type_name, is_static) in types.items():
            columns[each] = _column(each, type_name, is_static, has_clustering=bool(statement.clustering))
        table = Table(where, name, columns, statement.default_ttl_seconds)
        self.keyspaces[where][name] = table
        facts = {"default_time_to_live": statement.default_ttl_seconds}
        self._tell(("system_schema", "tables"), (where,), (name,), facts)
        for column in columns.values():
            self._tell_column(table, column)

    def _alter_table(self, statement: syntax.AlterTable, keyspace: str | None) -> None:
        table = self.table(statement.table, keyspace)
        for name, type_name, is_static in statement.added:
            if name in table.columns:
                if statement.if_not_exists:
                    continue
                raise InvalidRequest(f"Column with name '{name}' already exists")
            column = _column(name, type_name, is_static, has_clustering=bool(table.clustering))
            table.columns[name] = column
            self._tell_column(table, column)

    def _drop(self, statement: syntax.Drop, keyspace: str | None) -> None:
        where, name = (
            (statement.name[1], None)
            if statement.kind == "keyspace"
            else (
                statement.name[0] or keyspace,
                statement.name[1],
            )
        )
        exists = where in self.keyspaces and (name is None or name in self.keyspaces[where])
        if not exists:
            if statement.if_exists:
                return
            raise InvalidRequest(f"{statement.kind} {name or where} doesn't exist")
        assert where is not None
        if name is None:
            del self.keyspaces[where]
            for each in ("keyspaces", "tables", "columns"):
                self.keyspaces["system_schema"][each].partitions.pop((where,), None)
            return
        del self.keyspaces[where][name]
        for each in ("tables", "columns"):
            rows = self.keyspaces["system_schema"][each].partition((where,))
            for key in [key for key in rows.rows if key[0] == name]:
                del rows.rows[key]
                rows.order = [entry for entry in rows.order if entry[1] != key]

    def _tell_column(self, table: Table, column: Column) -> None:
        facts = {"type": column.type_name, "kind": column.kind}
        self._tell(("system_schema", "columns"), (table.keyspace,), (table.name, column.name), facts)

    def _tell(
        self,
        name: tuple[str, str],
        partition_key: tuple[str, ...],
        clustering: tuple[str, ...],
        facts: dict[str, Any],
    ) -> None:
        table = self.keyspaces[name[0]][name[1]]
        row = table.partition(partition_key).row(clustering, table.sort_key(clustering))
        row.write_marker(Cell(b"", _TIME_US))
        for column, value in facts.items():
            row.write(column, Cell(column_types.serialised(table.columns[column].cql_type, value), _TIME_US))


def _column(name: str, type_name: str, is_static: bool, *, has_clustering: bool) -> Column:
    column_types.type_of(type_name)
    if is_static and not has_clustering:
        raise InvalidRequest("Static columns are only useful (and thus allowed) if the table has a clustering column")
    return Column(name, type_name, "static" if is_static else "regular")
