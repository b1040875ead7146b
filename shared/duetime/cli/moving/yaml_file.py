"""Reads YAML 1.2, which includes JSON: ``no`` and ``2026-12-25`` are strings."""

from __future__ import annotations

import re
from typing import Any

import yaml

_TAG = "tag:yaml.org,2002:"


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # the package has no types
    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """Refuse a key that is there twice: the last one would count."""
        seen = set()
        for key, _ in node.value:
            if key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{key.value!r} is there twice", key.start_mark)
            seen.add(key.value)
        made: dict[Any, Any] = super().construct_mapping(node, deep)
        return made


for _name, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", [*"~nN", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", [*"tTfF"]),
    ("int", r"[-+]?[0-9]+", [*"-+0123456789"]),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", [*"-+.0123456789"]),
    ("merge", r"<<", ["<"]),
):
    _Loader.add_implicit_resolver(_TAG + _name, re.compile(f"(?:{_pattern})\\Z"), _first)
_Loader.add_constructor(f"{_TAG}int", lambda loader, node: int(loader.construct_scalar(node)))
_Loader.add_constructor(f"{_TAG}float", lambda loader, node: float(loader.construct_scalar(node)))


def read_yaml(text: str) -> Any:
    """Return the value of ``text``. Raises ``ValueError``, whose message has the line."""
    try:
        return yaml.load(text, _Loader)  # noqa: S506  # it makes plain values alone, as yaml.safe_load does
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        where = "" if mark is None else f"line {mark.line + 1}: "
        raise ValueError(f"{where}{getattr(error, 'problem', None) or error}") from None
    except RecursionError:
        raise ValueError("it is nested too deep") from None
