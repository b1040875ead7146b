"""Writes ``duetime.client.blocking`` from ``duetime.client.asynchronous``: ``python -m scripts.write_client``.

The two clients differ in words alone, so one is written by hand and the other is made of it.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "shared" / "duetime" / "client" / "asynchronous"
TARGET = ROOT / "shared" / "duetime" / "client" / "blocking"
SETTINGS = ROOT / "pyproject.toml"
NOTICE = "# Made of duetime/client/asynchronous by scripts/write_client.py: change that.\n"

PACKAGE = '"""The client for programs that wait, made of ``asynchronous`` by ``scripts/write_client.py``."""\n'

_WORDS = (
    (r"\basync (def|for|with)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\b__a(enter|exit)__\b", r"__\1__"),
    (r"\bAsyncGenerator\[(\w+), None\]", r"Generator[\1, None, None]"),
    (r"\bhttpx\.AsyncClient\b", "httpx.Client"),
    (r"\bAsync(?=[A-Z])", ""),
    (r"\ba(close|read|iter_bytes)\(", r"\1("),
    (r"\banyio\.sleep\b", "time.sleep"),
    (r"^import anyio$", "import time"),
    (r"\bduetime\.client\.asynchronous\b", "duetime.client.blocking"),
)

_TIDY = [
    *("check", "--quiet", "--select=I,UP028", "--fix", "--unsafe-fixes"),
    *(f"--config={SETTINGS}", "--config", 'lint.isort.known-first-party = ["duetime"]'),
]


def main() -> None:
    TARGET.mkdir(exist_ok=True)
    for name, text in render().items():
        (TARGET / name).write_text(text, encoding="utf-8")


def render() -> dict[str, str]:
    """What all modules should hold, by name."""
    sources = {path.name: path.read_text(encoding="utf-8") for path in sorted(SOURCE.glob("*.py"))}
    made = {name: NOTICE + blocking(text) for name, text in sources.items() if name != "__init__.py"}
    return {"__init__.py": PACKAGE} | _in_order(made)


def blocking(text: str) -> str:
    """The same without waiting for anybody else."""
    for pattern, word in _WORDS:
        text = re.sub(pattern, word, text, flags=re.MULTILINE)
    return text


def _in_order(modules: Mapping[str, str]) -> dict[str, str]:
    """With imports and lines as ruff has them."""
    with TemporaryDirectory() as made:
        for name, text in modules.items():
            (Path(made) / name).write_text(text, encoding="utf-8")
        for command in (_TIDY, ["format", "--quiet", f"--config={SETTINGS}"]):
            subprocess.run([sys.executable, "-m", "ruff", *command, made], check=True)
        return {name: (Path(made) / name).read_text(encoding="utf-8") for name in modules}


if __name__ == "__main__":
    main()
