"""Look-ups of host names, in a few threads beside the sender's own.

The threads are daemons: nothing can cancel a look-up that hangs, and neither ``close`` nor the interpreter's end may
wait for one.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue

MAX_LOOKUP_THREADS = 20
"""Look-ups that hang hold up those of other names that are new; names that are known are not affected."""

MAX_UNFINISHED_LOOKUPS = 2_000
"""Those whose callbacks have given up count as well: nothing else bounds them while the resolver hangs."""

Resolve = Callable[[str, int], Sequence[str]]
"""All addresses, as text, of a host name (ASCII, lower case) for a port. Raises ``OSError`` when there are none."""


def system_resolve(host: str, port: int) -> Sequence[str]:
    """Resolve names as this machine does: its hosts file, then DNS. Both families, whether it has a route or not."""
    # Bytes: text would go through Python's IDNA codec, which has its own idea of what a name is.
    found = socket.getaddrinfo(host.encode("ascii"), port, type=socket.SOCK_STREAM)
    return [str(sockaddr[0]) for *_, sockaddr in found]


class LookupThreads:
    """Runs jobs, first come first served, in threads that are started when they are needed and then stay."""

    def __init__(self, max_threads: int = MAX_LOOKUP_THREADS, max_unfinished: int = MAX_UNFINISHED_LOOKUPS) -> None:
        self._max_threads = max_threads
        self._max_unfinished = max_unfinished
        self._lock = threading.Lock()
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._unfinished = 0
        self._threads = 0

    def run(self, job: Callable[[], None]) -> bool:
        """Queue ``job``, which must not raise. False when it is not taken, since too many are unfinished.

        Raises ``RuntimeError`` when there is no thread yet and none can be started.
        """
        with self._lock:
            if self._unfinished >= self._max_unfinished:
                return False
            if self._unfinished >= self._threads < self._max_threads:
                self._grow()
            self._unfinished += 1
        self._jobs.put(job)
        return True

    def close(self) -> None:
        """Let the threads end after the jobs that they have. Does not wait."""
        with self._lock:
            threads, self._threads, self._max_threads = self._threads, 0, 0
        for _ in range(threads):
            self._jobs.put(None)

    def _grow(self) -> None:
        try:
            threading.Thread(target=self._work, name="duetime-lookup", daemon=True).start()
        except RuntimeError:  # the system has no thread to give
            if not self._threads:
                raise
        else:
            self._threads += 1

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            finally:
                with self._lock:
                    self._unfinished -= 1
