"""Writes the contents of a store to a file."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import BinaryIO

from duetime.stores.core.store import Store
from duetime.transfer.lines import (
    Checksum,
    Header,
    Position,
    checkpoint_line,
    header_line,
    trailer_line,
)
from duetime.transfer.records import Record
from duetime.transfer.scan import END, StoreScan
from duetime.transfer.totals import Totals

Progress = Callable[[Totals], None]
"""Is called after each page with what was done so far."""


def unseen(totals: Totals) -> None:
    """Report no progress."""
    del totals


_CHECKPOINT_RECORDS = 200
_CHECKPOINT_BYTES = 1024 * 1024
"""Minimum between two checkpoints. A reader holds that much, and one page, in memory."""


class Written:
    """Describes a file so far: its totals, its checksum, and the position at which the export continues.

    ``is_complete``: the file has its trailer.
    """

    def __init__(self) -> None:
        self.totals = Totals()
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
) -> Totals:
    """Write all that ``store`` holds to ``file`` and return the totals.

    ``written`` resumes an export: the file has that already, header included, and is positioned at its end. ``file``
    is flushed at each checkpoint, so that an export can be resumed after a crash (``reading.resumed``). ``confirm``
    is called before the trailer is written: it raises if the file must not become complete.
    """
    if written is not None and written.is_complete:
        return written.totals
    writer = _Writer(file, written or Written())
    if written is None:
        writer.write(header_line(header))
    for page in StoreScan(store, now=now).pages(writer.written.position):
        for record in page.records:
            writer.write_record(record)
        if page.next == END:
            break
        writer.checkpoint_if_due(page.next)
        progress(writer.written.totals)
    confirm()
    writer.write(trailer_line(writer.written.totals, writer.written.checksum.text()))
    file.flush()
    progress(writer.written.totals)
    return writer.written.totals


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
        self.written.totals.add(record)
        self._records += 1
        self._bytes += len(record.line)

    def checkpoint_if_due(self, position: Position) -> None:
        if self._records >= _CHECKPOINT_RECORDS or self._bytes >= _CHECKPOINT_BYTES:
            self.write(checkpoint_line(position, self.written.totals, self.written.checksum.text()))
            self._file.flush()
            self._records = self._bytes = 0
