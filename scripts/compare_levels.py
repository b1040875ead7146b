"""Compares the levels of duetime/stores/kinds.py with what the suites met: ``python -m scripts.compare_levels FILE``.

Exits with 1 and says what is missing when a store that is called supported has not passed one of the suites on a
server of its version; says nothing otherwise.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from duetime.stores.kinds import KINDS, StoreKind, SupportLevel

SUITES = ("contract", "crash", "workers")


def is_version_of(kind: StoreKind, version: str) -> bool:
    """Tell whether ``version``, which a server says of itself, is the one that the table has: MariaDB speaks as
    MySQL."""
    is_relative = any(name in version for name in ("MariaDB", "TiDB") if name != kind.name)
    return not is_relative and re.search(rf"(?<![\d.]){re.escape(kind.ran_on)}(?!\d)", version) is not None


def unproved(met: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return what the table calls supported and ``met`` does not show, a line for each suite of each store."""
    found = {
        (kind.name, each["suite"])
        for each in met
        for kind in KINDS
        if each["store"] == kind.schemes[0] and each["passed"] and is_version_of(kind, each["version"])
    }
    return [
        f"{kind} is called supported, and its suite {suite!r} has passed on no such server"
        for kind in KINDS
        if kind.level is SupportLevel.SUPPORTED
        for suite in SUITES
        if (kind.name, suite) not in found
    ]


if __name__ == "__main__":
    file = Path(sys.argv[1])
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    problems = unproved(map(json.loads, lines))
    if problems:
        sys.exit("\n".join([*lines, *problems]))
