"""What is wrong with a value, in the words of JSON and of people, where pydantic has Python's."""

from __future__ import annotations

from pydantic_core import ErrorDetails

_BY_TYPE = {
    "missing": "is required",
    "extra_forbidden": "is not a known field",
    "model_type": "must be an object",
    "list_type": "must be an array",
    "string_type": "must be a string",
    "string_too_short": "must not be empty",  # every least length is 1
    **dict.fromkeys(("bool_type", "bool_parsing"), "must be true or false"),
    **dict.fromkeys(("int_type", "int_parsing", "int_parsing_size", "int_from_float"), "must be a whole number"),
    **dict.fromkeys(("float_type", "float_parsing", "finite_number"), "must be a number"),
}


def message_of(detail: ErrorDetails) -> str:
    """Return one error of a ``ValidationError``, to be read after the name of the field. It does not show the
    value."""
    kind = detail["type"]
    if kind in _BY_TYPE:
        return _BY_TYPE[kind]
    if kind == "too_long":
        return f"must have at most {detail['ctx']['max_length']} items"
    if kind == "string_too_long":
        return f"must have at most {detail['ctx']['max_length']} characters"
    return detail["msg"].removeprefix("Value error, ").replace("Input should be", "must be", 1)
