"""What is wrong with a value, in the words of JSON and of people, where pydantic has Python's."""

from __future__ import annotations

from pydantic_core import ErrorDetails

_BY_TYPE = {
    "missing": "is required",
    "extra_forbidden": "is not a known field",
    "model_type": "must be an object",
    "list_type": "must be an array",
    "string_type": "must be a string",
    **dict.fromkeys(("bool_type", "bool_parsing"), "must be true or false"),
    **dict.fromkeys(("int_type", "int_parsing", "int_parsing_size", "int_from_float"), "must be a whole number"),
    **dict.fromkeys(("float_type", "float_parsing", "finite_number"), "must be a number"),
}
_LENGTHS = {"string_too_short": ("min_length", "at least"), "string_too_long": ("max_length", "at most")}


def message_of(detail: ErrorDetails) -> str:
    """Return one error of a ``ValidationError``, to be read after the name of the field. It does not show the
    value."""
    kind = detail["type"]
    if kind in _BY_TYPE:
        return _BY_TYPE[kind]
    if kind == "too_long":
        return f"must have at most {detail['ctx']['max_length']} items"
    if kind in _LENGTHS:
        name, words = _LENGTHS[kind]
        return f"must have {words} {detail['ctx'][name]} characters"
    return detail["msg"].removeprefix("Value error, ").replace("Input should be", "must be", 1)
