"""How a benchmark tells what it measured: a line of text for each thing; with ``--json``, lines of JSON, too.

The text is then on stderr, for who watches. A line of JSON has the names ``benchmark`` and ``what``, and the figures.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

_as_json = False


def parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with ``--json``; ``description`` is a module's docstring."""

    class AsJson(argparse.Action):
        def __call__(self, *_: object) -> None:
            global _as_json
            _as_json = True

    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--json", nargs=0, action=AsJson, help="print lines of JSON, and the text to stderr")
    return made


def show(what: str, **figures: float | str | None) -> None:
    """Print what was measured of ``what``. A figure's name ends in its unit; None was not measured."""
    measured = {name: value for name, value in figures.items() if value is not None}
    text = f"{what}: " + ", ".join(f"{name.replace('_', ' ')} {_text(value)}" for name, value in measured.items())
    print(text, file=sys.stderr if _as_json else sys.stdout, flush=True)
    if _as_json:
        program = Path(sys.argv[0])
        name = program.parent.name if program.stem == "__main__" else program.stem
        rounded = {
            each: float(f"{value:.6g}") if isinstance(value, float) else value for each, value in measured.items()
        }
        print(json.dumps({"benchmark": name, "what": what, **rounded}), flush=True)


def note(text: str) -> None:
    """Tell somebody who watches."""
    print(text, file=sys.stderr, flush=True)


def _text(value: float | str | None) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
