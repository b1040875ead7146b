"""Writing a store's contents to a file."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import BinaryIO

from duetime.moving.lines import (
    Checksum,
    Header,
    Position,
    checkpoint_line,
    header_line,
    trailer_line,
)
from duetime.moving.records import Record
from duetime.moving.tally import Tally
from duetime.moving.walk import END, Walk
from duetime.stores.port.store import Store

Progress = Callable[[Tally], None]
"""Called now and then with what has been done so far."""


def unseen(tally: Tally) -> None:
    """Nobody wants to know."""
    del tally


_CHECKPOINT_RECORDS = 200
_CHECKPOINT_BYTES = 1024 * 1024
"""What stands between two checkpoints at least: whoever reads the file holds so much, and a page, in memory."""


class Written:
    """What a file holds so far, and where its reading of the store goes on. ``is_complete``: it has its trailer."""

    def __init__(self) -> None:
        self.tally = Tally()
        self.checksum = Checksum()
        self.position: Position | None = None
        self.is_complete = False


def export(
    store: Store,
    file: BinaryIO,
    *,
    now: datetime,
    header: Header,
    written: Written | None = None,
    progress: Progress = unseen,
    confirm: Callable[[], None] = lambda: None,
) -> Tally:
    """Write all that ``store`` holds, and hand back what was written.

    ``written``: the file has that already, its header included, and is at its end. ``file`` is flushed at each
    checkpoint; what a crash leaves behind it can be gone on from (``resuming``). ``confirm`` is called when all was
    read: it raises what keeps the file from being complete.
    """
    if written is not None and written.is_complete:
        return written.tally
    writer = _Writer(file, written or Written())
    if written is None:
        writer.write(header_line(header))
    for page in Walk(store, now=now).pages(writer.written.position):
        for record in page.records:
            writer.write_record(record)
        if page.next == END:
            break
        writer.checkpoint_if_due(page.next)
        progress(writer.written.tally)
    confirm()
    writer.write(trailer_line(writer.written.tally, writer.written.checksum.text()))
    file.flush()
    progress(writer.written.tally)
    return writer.written.tally


class _Writer:
    def __init__(self, file: BinaryIO, written: Written) -> None:
        self._file = file
        self.written = written
        self._records = 0
        self._bytes = 0

    def write(self, line: bytes) -> None:
        self._file.write(line + b"\n")
        self.written.checksum.add(line)

    def write_record(self, record: Record) -> None:
        self.write(record.line)
        self.written.tally.add(record)
        self._records += 1
        self._bytes += len(record.line)

    def checkpoint_if_due(self, position: Position) -> None:
        if self._records >= _CHECKPOINT_RECORDS or self._bytes >= _CHECKPOINT_BYTES:
            self.write(checkpoint_line(position, self.written.tally, self.written.checksum.text()))
            self._file.flush()
            self._records = self._bytes = 0
