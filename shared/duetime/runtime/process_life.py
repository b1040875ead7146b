"""Whether a process of this machine has died: the kernel tells, however it ended.

A process binds an abstract Unix socket, which is gone with its last thread, and never before. The socket's name is a
part of the ids of its workers. Such names are of one network namespace of one running kernel, which the name begins
with: of workers elsewhere nothing is known.
"""

from __future__ import annotations

import errno
import os
import socket
from functools import cache
from hashlib import blake2b
from pathlib import Path

from uuid6 import uuid7

_PLACE_LENGTH = 16


@cache
def name_of_life() -> str | None:
    """Return the name that lives as long as this process; None where nothing tells others of its death."""
    place = _place()
    if place is None:
        return None
    name = f"{place}{uuid7().hex[-12:]}"
    life = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        life.bind(_address(name))
    except OSError:
        life.close()
        return None
    life.detach()  # nobody closes it before the kernel does
    return name


def has_died(worker_id: str) -> bool:
    """Tell whether the process of ``worker_id`` has died for certain. False where it lives, or where nobody here
    knows."""
    name, place = worker_id.rpartition(":")[2], _place()
    if place is None or not name.startswith(place):
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        return probe.connect_ex(_address(name)) == errno.ECONNREFUSED


def _address(name: str) -> str:
    return f"\0duetime:{name}"


@cache
def _place() -> str | None:
    """Return the place in which names of sockets are unique. None on other systems than Linux, and on Lambda: its
    machines are copies of a running one, and could not tell themselves apart."""
    if "AWS_LAMBDA_FUNCTION_NAME" in os.environ:
        return None
    try:
        kernel = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
        network = Path("/proc/self/ns/net").readlink()
    except OSError:
        return None
    facts = f"{socket.gethostname()}/{kernel}/{network}"
    return blake2b(facts.encode(), digest_size=_PLACE_LENGTH // 2).hexdigest()
