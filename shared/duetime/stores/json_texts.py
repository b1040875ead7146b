"""What is stored as JSON, as texts. ``msgspec`` is faster than the standard library."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from duetime.domain import json_text

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def as_json(value: Any) -> str:
    """Return the JSON text of a value of tuples, lists and dicts of what JSON has, or of a struct."""
    try:
        return _encode(value).decode()
    except UnicodeEncodeError:  # a text that is no Unicode: the database refuses it, and only what it belongs to
        return json.dumps(msgspec.to_builtins(value), ensure_ascii=False)


def read_json(text: str) -> Any:
    """Return the value of a JSON text. Raises ``ValueError``."""
    try:
        return _decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return json.loads(text)


def is_json(text: str) -> bool:
    """Tell whether ``text`` is a JSON value."""
    try:
        _decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return json_text.is_json(text)
    return True


def is_object(text: str) -> bool:
    """Tell whether ``text`` is a JSON object."""
    try:
        return isinstance(_decode(text), dict)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return json_text.is_object(text)
