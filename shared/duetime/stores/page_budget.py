"""How much of payloads a page holds, whichever store it comes from.

A page is bounded in timers, but a payload may have 256 KiB: 500 of them would be 125 MiB. A store looks at sizes
before it transfers what is large, or reads row by row, and ends the page where it is full.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

PAGE_BYTES: Final = 8 * 1024 * 1024
"""Or characters, where that is what a database tells without reading them all."""


def fitting(sizes: Iterable[int], *, budget: int = PAGE_BYTES) -> int:
    """How many of the first of ``sizes`` make a page: one at least, however large it is."""
    total = count = 0
    for size in sizes:
        total += size
        if total > budget and count > 0:
            return count
        count += 1
    return count
