"""The types of columns. STRICT tables of SQLite know INTEGER, TEXT and BLOB only; other dialects want widths.

SQL Server (``mssql``) needs more: it compares texts as if they ended alike in blanks, and takes a whole number of
more than ten digits for a decimal one, which finds no bigint by its index. There the types put into each statement,
around the values that they compare and write and the columns that they read, what makes it exact (decision 0017).
"""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.types import TypeDecorator

MSSQL_END: sa.ColumnElement[str] = sa.literal_column("NCHAR(1)")
"""What ends an exact text there: sorts before all that ids may hold, so order is kept, and is no blank."""


class _Bigint(TypeDecorator[int]):
    """A whole number that has this type whatever its literal looks like."""

    impl = sa.BigInteger
    cache_ok = True

    def bind_expression(self, bindvalue: sa.BindParameter[int]) -> sa.ColumnElement[int]:
        return sa.cast(bindvalue, sa.BigInteger())


class _Bytes16(TypeDecorator[bytes]):
    """16 bytes, likewise."""

    impl = sa.BINARY(16)
    cache_ok = True

    def bind_expression(self, bindvalue: sa.BindParameter[bytes]) -> sa.ColumnElement[bytes]:
        return sa.cast(bindvalue, sa.BINARY(16))


class _Ended(TypeDecorator[str]):
    """A text that is stored with ``MSSQL_END`` behind it, so that none ends in blanks."""

    impl = sa.Unicode
    cache_ok = True

    def bind_expression(self, bindvalue: sa.BindParameter[str]) -> sa.ColumnElement[str]:
        return sa.type_coerce(bindvalue, sa.Unicode()).concat(MSSQL_END)

    def column_expression(self, column: sa.ColumnElement[str]) -> sa.ColumnElement[str]:
        return sa.func.left(column, sa.func.len(column) - sa.literal_column("1"), type_=sa.Unicode())


BIG = sa.BigInteger().with_variant(sa.Integer, "sqlite").with_variant(_Bigint(), "mssql")
SMALL = sa.SmallInteger().with_variant(sa.Integer, "sqlite")
BYTES_16 = sa.LargeBinary(16).with_variant(sa.BINARY(16), "mysql").with_variant(_Bytes16(), "mssql")


def text_of(length: int) -> sa.types.TypeEngine[str]:
    """Return a text of up to ``length`` characters. PostgreSQL too compares it byte by byte: lists have one order."""
    by_bytes = sa.String(length, collation="C")
    return sa.String(length).with_variant(sa.Text(), "sqlite").with_variant(by_bytes, "postgresql")


def exact_text_of(length: int) -> sa.types.TypeEngine[str]:
    """Return the same where statements compare texts that may end in blanks: ids and what else clients choose."""
    return text_of(length).with_variant(_Ended(length), "mssql")
