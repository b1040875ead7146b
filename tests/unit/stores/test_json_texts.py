"""JSON that is stored comes back as it was, and what is not JSON is told by a ``ValueError``."""

from __future__ import annotations

import pytest

from duetime.stores.json_texts import as_json, is_object, read_json

VALUES = [
    None,
    [["content-type", "text/plain"], ["ä", '"quoted"\n']],
    {"n": 12345678901234567890, "f": 1.5, "is": True, "x": None},
    "half of a pair: \ud800",
]


@pytest.mark.parametrize("value", VALUES, ids=["null", "headers", "object", "half"])
def test_a_value_comes_back(value: object) -> None:
    assert read_json(as_json(value)) == value


@pytest.mark.parametrize("text", ["", "{", "[1,]", "nul", '"\ud800'])
def test_what_is_no_json_is_told(text: str) -> None:
    with pytest.raises(ValueError, match=r"line 1"):
        read_json(text)
    assert not is_object(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("{}", True), (' {"a": [1]}', True), ("[]", False), ('{"a": NaN}', False), ('{"a": "\ud800"}', True)],
)
def test_an_object_is_told_from_other_values(text: str, *, expected: bool) -> None:
    assert is_object(text) is expected
