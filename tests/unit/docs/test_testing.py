"""The examples of docs/testing.md run."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from duetime.testing import in_memory

PAGE = Path(__file__).parents[3] / "docs" / "testing.md"


def _examples() -> dict[str, Any]:
    """The page's test functions: each block goes on where the one before ended."""
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.M | re.S):
        exec(compile(block, str(PAGE), "exec"), names)
    return {name: value for name, value in names.items() if name.startswith("test_")}


EXAMPLES = _examples()


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_does_what_it_says(name: str) -> None:
    example = EXAMPLES[name]
    if "duetime" not in inspect.signature(example).parameters:
        example()
        return
    with in_memory() as duetime:
        example(duetime)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) == 4
