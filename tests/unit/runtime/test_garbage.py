"""What a process tells the garbage collector before it serves."""

from __future__ import annotations

import subprocess
import sys

_SCRIPT = """
import gc, weakref
from duetime.runtime import garbage

class Node: pass

kept = Node()
garbage.begin_to_serve()
cycle = Node()
cycle.itself = cycle
seen = weakref.ref(cycle)
del cycle
print("kept is looked at:", any(found is kept for found in gc.get_objects()))
gc.collect()
print("the cycle is there:", seen() is not None)
"""


def test_what_was_there_is_left_alone_and_cycles_are_still_collected() -> None:
    """In a process of its own: it is for good."""
    done = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["kept is looked at: False", "the cycle is there: False"]
