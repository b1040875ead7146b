"""The types of columns. STRICT tables of SQLite know INTEGER, TEXT and BLOB only; other dialects want widths."""

from __future__ import annotations

import sqlalchemy as sa

BIG = sa.BigInteger().with_variant(sa.Integer, "sqlite")
SMALL = sa.SmallInteger().with_variant(sa.Integer, "sqlite")


def text_of(length: int) -> sa.types.TypeEngine[str]:
    """A text of up to ``length`` characters."""
    return sa.String(length).with_variant(sa.Text(), "sqlite")
