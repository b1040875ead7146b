"""Duetime itself: ``duetime serve``, with schedules that are put over HTTP."""

import os
import sys
import time

from benchmarks.schedules import create
from benchmarks.service import ROOT, running


def main(command: str, number: int, url: str) -> None:
    store = os.environ["PEER_STORE"]
    if command == "create":
        with running(store) as service:
            create(service, url, number, start_at=time.time() // 60 * 60)
    else:
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "shared")}
        serve = ("-m", "duetime.cli", "serve", "--port", "0", "--store", store, "--log-level", "warning")
        os.execve(sys.executable, (sys.executable, *serve), environment)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
