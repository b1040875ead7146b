"""New ids: timers, firings, requests and workers."""

from __future__ import annotations

import json
import os
import socket

from uuid6 import uuid7

from duetime import __version__
from duetime.runtime.process_life import name_of_life


def new_id() -> str:
    """Make a UUID version 7: unique, and sorted by the time it was made."""
    return str(uuid7())


def new_worker_id() -> str:
    """Make an id that is unique for ever and tells the host and process: ``host:pid:random``, and ``:life`` where
    there is one that ``process_life.has_died`` knows."""
    parts = (socket.gethostname(), str(os.getpid()), new_id()[-12:], name_of_life())
    return ":".join(part for part in parts if part)


def worker_metadata() -> str:
    """Describe this process, as JSON, for people who look at the owner of a shard."""
    facts = {"processId": os.getpid(), "serviceVersion": __version__, "host": socket.gethostname()}
    return json.dumps(facts, separators=(",", ":"))
