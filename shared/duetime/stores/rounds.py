"""Again, when another writer was faster: at once at first, then after waits of a random length."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

_MOST_ROUNDS = 100
_PATIENT_ROUNDS = 3
_LONGEST_WAIT_SECONDS = 0.05


def rounds() -> Iterator[int]:
    """The numbers of attempts from 0."""
    for turn in range(_MOST_ROUNDS):
        if turn > _PATIENT_ROUNDS:
            time.sleep(random.uniform(0, _LONGEST_WAIT_SECONDS))
        yield turn
