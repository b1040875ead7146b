"""How much of payloads a page holds, whichever store it comes from.

A page is bounded in timers, but a payload may have 256 KiB: 500 of them would be 125 MiB. A store looks at sizes
before it transfers what is large, or reads row by row, and ends the page where it is full.
"""

from __future__ import annotations

from typing import Final

PAGE_BYTES: Final = 8 * 1024 * 1024
"""Or characters, where that is what a database tells without reading them all."""
