"""``duetime export`` or ``duetime import`` in a process that kills itself on the way:

    python -m tests.support.transfer_launcher <point> <number> export --store ...

``record``: when the ``number``th record is counted; ``loaded``: when the ``number``th was loaded.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from functools import wraps
from itertools import count
from typing import Any

from duetime.cli.main import run
from duetime.transfer.importing import Importer
from duetime.transfer.totals import Totals

_POINTS: dict[str, tuple[Any, str]] = {"record": (Totals, "add"), "loaded": (Importer, "_count")}


def dying(operation: Callable[..., None], number: int) -> Callable[..., None]:
    calls = count(1)

    @wraps(operation)
    def wrapped(*arguments: Any) -> None:
        if next(calls) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        operation(*arguments)

    return wrapped


def main(point: str, number: str, *command: str) -> None:
    owner, name = _POINTS[point]
    setattr(owner, name, dying(getattr(owner, name), int(number)))
    sys.exit(run(command))


if __name__ == "__main__":
    main(*sys.argv[1:])
