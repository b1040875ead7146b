"""The process's limit of open files: every callback under way needs one."""

from __future__ import annotations

import logging
import resource

log = logging.getLogger(__name__)

_OTHERS = 200
"""For the store, the API's connections, logs and libraries."""


def allow_connections(number: int) -> None:
    """Raise the soft limit so that ``number`` connections fit, as far as the hard limit lets us.

    Where they do not fit, callbacks fail to connect under full load: a warning says which setting to lower.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = number + _OTHERS
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    wanted = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (ValueError, OSError):  # a sandbox may forbid even what its own limits allow
        wanted = soft
    if wanted < needed:
        log.warning(
            "%d open files are allowed and %d may be needed: lower DUETIME_MAX_IN_FLIGHT or raise the limit",
            wanted,
            needed,
            extra={"action": "process.few_open_files"},
        )
