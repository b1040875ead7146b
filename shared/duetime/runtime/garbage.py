"""Tells Python's garbage collector what a server is like: much that stays, and much that lives for milliseconds."""

from __future__ import annotations

import gc

_YOUNG_OBJECTS = 10_000
"""Those of some hundred timers. With Python's 700, each timer of a full page is looked at again and again in vain."""


def begin_to_serve() -> None:
    """Look never again at what there is now: it stays. Look rarely at what comes: little of it has cycles."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS, *gc.get_threshold()[1:])
