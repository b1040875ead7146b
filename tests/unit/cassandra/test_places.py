"""Places sort as the values do, and tell the values again."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from duetime.stores.backends.cassandra.places import BEHIND_ALL, Parts, behind, decode, encode
from duetime.stores.entity import Kind

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
NUMBERS = st.integers(-(1 << 63), (1 << 63) - 1)
ROWS = st.tuples(TEXTS, NUMBERS, st.binary(max_size=4), st.booleans())
KINDS = (Kind.TEXT, Kind.WHOLE, Kind.BYTES, Kind.FLAG)
DESCENDING = st.tuples(st.booleans(), st.booleans(), st.booleans(), st.booleans())


def parts_of(descending: tuple[bool, ...]) -> Parts:
    return list(zip(KINDS, descending, strict=True))


def is_before(one: tuple[Any, ...], other: tuple[Any, ...], descending: tuple[bool, ...]) -> bool:
    """Texts compare by code points, as their UTF-8 does."""
    for first, second, is_descending in zip(one, other, descending, strict=True):
        if first != second:
            return bool((first < second) != is_descending)
    return False


@given(ROWS, ROWS, DESCENDING)
def test_places_sort_as_values(one: tuple[Any, ...], other: tuple[Any, ...], descending: tuple[bool, ...]) -> None:
    parts = parts_of(descending)

    assert (encode(parts, one) < encode(parts, other)) == is_before(one, other, descending)


@given(ROWS, DESCENDING, st.binary(max_size=3))
def test_values_are_told_again(row: tuple[object, ...], descending: tuple[bool, ...], rest: bytes) -> None:
    parts = parts_of(descending)

    assert decode(parts, encode(parts, row) + rest) == (row, rest)


@given(st.binary(max_size=4), st.binary(max_size=4))
def test_nothing_with_a_prefix_is_behind_it(prefix: bytes, rest: bytes) -> None:
    assert prefix + rest < behind(prefix) or behind(prefix) == BEHIND_ALL
    assert behind(prefix) > prefix
