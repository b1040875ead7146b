"""Which functions of the product are entered while something runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType

import duetime

_PRODUCT = f"{Path(duetime.__file__).parent}/"
_NOT_THE_PRODUCT = f"{_PRODUCT}testing/"


@contextmanager
def traced() -> Iterator[list[CodeType]]:
    """The functions that this thread enters, in order, each as often as it is entered. Imports do not count."""
    entered: list[CodeType] = []

    def note(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event == "call" and _is_of_product(code) and code.co_name != "<module>":
            entered.append(code)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield entered
    finally:
        sys.setprofile(before)


def file_of(code: CodeType) -> str:
    """In the package ``duetime``."""
    return code.co_filename.removeprefix(_PRODUCT)


def _is_of_product(code: CodeType) -> bool:
    return code.co_filename.startswith(_PRODUCT) and not code.co_filename.startswith(_NOT_THE_PRODUCT)
