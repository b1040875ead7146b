"""Raises the limits of the process on open files (each callback in flight needs one) and threads."""

from __future__ import annotations

import logging
import resource

log = logging.getLogger(__name__)

OTHER_FILES = 200
"""For the store, the API's connections, logs and libraries."""
_THREADS = 150
"""Those of the poller, look-ups, the API and the store's driver together, all at work at once."""


def allow(connections: int) -> None:
    """Raise the soft limits so that ``connections`` and the threads fit, as far as the hard limits let us.

    Where they do not fit, callbacks fail to connect under full load and the store cannot be reached, so leases are
    lost: a warning says what to change. A user's limit of threads counts all processes of that user.
    """
    files = _raise(resource.RLIMIT_NOFILE, connections + OTHER_FILES)
    if files is not None:
        log.warning(
            "%d open files are allowed and %d may be needed: lower DUETIME_MAX_IN_FLIGHT or raise the limit",
            files,
            connections + OTHER_FILES,
            extra={"action": "process.few_open_files"},
        )
    threads = _raise(resource.RLIMIT_NPROC, _THREADS)
    if threads is not None:
        log.warning(
            "%d threads are allowed and %d may be needed: raise the user's limit of processes",
            threads,
            _THREADS,
            extra={"action": "process.few_threads"},
        )


def _raise(which: int, needed: int) -> int | None:
    """Raise a limit. Returns the limit if it is less than ``needed``, else None."""
    soft, hard = resource.getrlimit(which)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return None
    wanted = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    try:
        resource.setrlimit(which, (wanted, hard))
    except (ValueError, OSError):  # a sandbox may forbid even what its own limits allow
        wanted = soft
    return None if wanted >= needed else wanted
