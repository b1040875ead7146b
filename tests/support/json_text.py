"""Hypothesis strategies for JSON as text, with all the freedom that the grammar leaves."""

from __future__ import annotations

import json

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

_SPACES = st.text(alphabet=" \t\r\n", max_size=3)
_INTEGERS = st.from_regex(r"-?(0|[1-9][0-9]{0,60})", fullmatch=True)
_NUMBERS = st.one_of(
    _INTEGERS,
    st.from_regex(r"-?(0|[1-9][0-9]{0,20})\.[0-9]{1,25}", fullmatch=True),
    st.from_regex(r"-?(0|[1-9][0-9]{0,5})(\.[0-9]{1,5})?[eE][+-]?[0-9]{1,4}", fullmatch=True),
    st.sampled_from(["1e400", "-0", "-0.0", "1.0", "1e-400", "9" * 5000, "0.1", "123456789012345678901234567890"]),
)
_ESCAPES = st.sampled_from(
    ['\\"', "\\\\", "\\/", "\\b", "\\n", "\\u0000", "\\ud83d\\ude00", "\\uD83D\\uDE00", "\\\\ud800", "\\u00e9"]
)
_CHARACTERS = st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters='"\\'), max_size=5).map(
    lambda text: "".join(character if character >= " " else json.dumps(character)[1:-1] for character in text)
)
_STRINGS = st.lists(st.one_of(_ESCAPES, _CHARACTERS), max_size=4).map(lambda parts: f'"{"".join(parts)}"')


def _array(items: list[tuple[str, str]]) -> str:
    return f"[{','.join(space + item + space for space, item in items)}]"


def _object(members: list[tuple[str, str, str]]) -> str:
    return f"{{{','.join(f'{space}{name}{space}:{space}{value}{space}' for space, name, value in members)}}}"


def json_texts() -> SearchStrategy[str]:
    """One JSON value: big and odd numbers, every escape, names that come twice, spaces anywhere."""
    return st.recursive(
        st.one_of(_NUMBERS, _STRINGS, st.sampled_from(["null", "true", "false", '""', "[]", "{}"])),
        lambda values: st.one_of(
            st.lists(st.tuples(_SPACES, values), max_size=4).map(_array),
            st.lists(st.tuples(_SPACES, _STRINGS, values), max_size=4).map(_object),
        ),
        max_leaves=12,
    )
