"""Hints between the processes of one ``duetime serve``: when something is due soon in shards of another.

They are lines in the pipes between a server and its workers (``local.workers``). A hint that is lost costs a look of
the owner's, and no timer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from duetime.calls.relay import OUTBOX_SHARD, OutboxRelay
from duetime.domain.clock import Clock
from duetime.domain.times import from_milliseconds, to_milliseconds
from duetime.engine.poller import Poller
from duetime.stores.core.calls import CallStore

Due = Mapping[int, datetime]
"""By shard when the first of what was stored is due. The relay's ``OUTBOX_SHARD`` stands for events to publish."""
Tell = Callable[[Due], None]
"""Safe to call from any thread, and does not wait."""

_PREFIX = b"due "


def write_hint(due: Due) -> bytes:
    """Encode ``due`` as a line, with its end."""
    return _PREFIX + b" ".join(b"%d:%d" % (shard_id, to_milliseconds(at)) for shard_id, at in due.items()) + b"\n"


def is_hint(line: bytes) -> bool:
    return line.startswith(_PREFIX)


def read_hint(line: bytes) -> dict[int, datetime]:
    """Parse a line of ``write_hint``. Raises ``ValueError`` for anything else."""
    if not is_hint(line):
        raise ValueError("not a hint")
    pairs = (pair.split(b":", 1) for pair in line.removeprefix(_PREFIX).split())
    return {int(shard_id): from_milliseconds(int(at)) for shard_id, at in pairs}


def hearing(poller: Poller, relay: OutboxRelay | None) -> Tell:
    """Return what is told of the hints of other processes."""

    def hear(due: Due) -> None:
        poller.note_due(due)
        if relay is not None and OUTBOX_SHARD in due:
            relay.notify()

    return hear


def connect(tell: Tell, poller: Poller, relay: OutboxRelay | None, calls: CallStore, clock: Clock) -> None:
    """Tell others of what this process stores and they are to fire or publish."""
    poller.connect(tell)

    def tell_of_events() -> None:
        if relay is None or not relay.stats.is_active:
            tell({OUTBOX_SHARD: clock.now()})

    calls.on_events.append(tell_of_events)
