"""Makes ``duetime_client.blocking`` of ``duetime_client.asynchronous``: at each build, and as a program.

The two clients differ in words alone, so only one is written by hand and only that one is committed. ``pip`` runs
this before it makes a wheel or an editable install; in a checkout ``make`` and the tests run it after a change.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = Path(__file__).parent / "duetime_client"
NOTICE = "# Made of duetime_client/asynchronous by hatch_build.py: change that.\n"

_WORDS = (
    (r"\basync (def|for|with)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\b__a(enter|exit)__\b", r"__\1__"),
    (r"\bAsyncGenerator\[(\w+), None\]", r"Generator[\1, None, None]"),
    (r"\bhttpx\.AsyncClient\b", "httpx.Client"),
    (r"\bAsync(?=[A-Z])", ""),
    (r"\ba(close|read|iter_bytes)\(", r"\1("),
    (r"\banyio\b", "time"),
    (r"\bduetime_client\.asynchronous\b", "duetime_client.blocking"),
)


def blocking(text: str) -> str:
    """Return the module ``text`` for programs that block."""
    for pattern, word in _WORDS:
        text = re.sub(pattern, word, text)
    return text


def make_blocking(package: Path = PACKAGE) -> None:
    """Write ``blocking``. A file that is right already is left alone, so several processes may do this at once."""
    target = package / "blocking"
    target.mkdir(exist_ok=True)
    wanted = {
        source.name: NOTICE + blocking(source.read_text("utf-8")) for source in package.glob("asynchronous/*.py")
    }
    for made in target.glob("*.py"):
        if made.name not in wanted:
            made.unlink()
    for name, text in wanted.items():
        made = target / name
        if not made.exists() or made.read_text("utf-8") != text:
            written = made.with_suffix(f".{os.getpid()}")
            written.write_text(text, "utf-8")
            written.replace(made)


class BlockingTwin(BuildHookInterface[Any]):
    """Hatch's hook, which it runs for wheels, source distributions and editable installs alike."""

    PLUGIN_NAME = "custom"

    def initialize(self, *_: Any) -> None:
        """Run before each build."""
        make_blocking(Path(self.root) / "duetime_client")


if __name__ == "__main__":
    make_blocking()
