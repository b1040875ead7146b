"""Reads a file, and finds where an export that was interrupted can be resumed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

from duetime.domain.executions import Execution
from duetime.domain.service_calls import ServiceCall
from duetime.transfer.errors import BadExport, TransferRefused
from duetime.transfer.exporting import Written
from duetime.transfer.lines import (
    CHECKPOINT_START,
    HEADER_START,
    MAX_LINE_BYTES,
    TRAILER_START,
    Checkpoint,
    Checksum,
    Header,
    Trailer,
    read_header,
    read_line,
)
from duetime.transfer.models import read_value
from duetime.transfer.records import Record, record_of
from duetime.transfer.totals import Totals

_INCOMPLETE = "it has no trailer, so it is not complete: continue it with `duetime export --resume`"


@dataclass(slots=True)
class ExportReader:
    """Reads an export file. Raises ``BadExport``, which names the line, for whatever is wrong with it.

    ``pages`` gives records only after the checksum that follows them was verified, so that nothing of a damaged page
    is used. ``totals`` counts what was given so far; at the end it is compared with the trailer's.
    """

    file: BinaryIO
    header: Header = field(init=False)
    totals: Totals = field(init=False)
    _number: int = 0
    _checksum: Checksum = field(init=False)

    def __post_init__(self) -> None:
        self.totals = Totals()
        self._checksum = Checksum()
        line = self._next_line()
        self.header = read_header(line or b"")
        self._checksum.add(line or b"")

    def pages(self) -> Iterator[list[Record]]:
        lines: list[bytes] = []
        while True:
            line = self._next_line()
            if line is None:
                raise BadExport(f"the file ends after line {self._number}: {_INCOMPLETE}")
            if line.startswith(CHECKPOINT_START):
                checkpoint = read_line(Checkpoint, line, self._number)
                yield self._verified(lines, checkpoint.checksum)
                lines = []
                self._checksum.add(line)
            elif line.startswith(TRAILER_START):
                trailer = read_line(Trailer, line, self._number)
                yield self._verified(lines, trailer.checksum)
                self._check_totals(trailer)
                if self._next_line() is not None:
                    raise BadExport(f"line {self._number}: there is more after the trailer")
                return
            else:
                lines.append(line)

    def _verified(self, lines: list[bytes], checksum: str) -> list[Record]:
        """Verify the checksum of ``lines``, which end before the current line, and return their records."""
        for line in lines:
            self._checksum.add(line)
        first = self._number - len(lines)
        if self._checksum.text() != checksum:
            raise BadExport(
                f"line {self._number}: the checksum does not match what comes before it: "
                f"the file was changed or damaged at line {first} or later"
            )
        records = _records(lines, first)
        for record in records:
            self.totals.add(record)
        return records

    def _check_totals(self, trailer: Trailer) -> None:
        totals = (self.totals.shown_counts(), self.totals.shown_digests())
        if totals != (trailer.counts, trailer.digests):
            raise BadExport(f"line {self._number}: the trailer's counts and digests do not match the records")

    def _next_line(self) -> bytes | None:
        """Return the next line without its end; None at the end of the file."""
        line = self.file.readline(MAX_LINE_BYTES + 1)
        if not line:
            return None
        self._number += 1
        if not line.endswith(b"\n"):
            if self._number == 1 and not line.startswith(HEADER_START[: len(line)]):
                return line
            if len(line) > MAX_LINE_BYTES:
                raise BadExport(f"line {self._number} is longer than any line that Duetime writes")
            raise BadExport(f"line {self._number} is cut off: {_INCOMPLETE}")
        return line[:-1]


def _records(lines: list[bytes], first: int) -> list[Record]:
    """Parse ``lines``. ``first``: the number of the first one."""
    records = []
    call: ServiceCall | None = None
    for number, line in enumerate(lines, first):
        try:
            value = read_value(line)
        except ValueError as error:
            raise BadExport(f"line {number}: {error}") from None
        if isinstance(value, ServiceCall):
            call = value
        # An execution follows its call and goes with it.
        is_of_call = isinstance(value, Execution) and call is not None and value.call_id == call.call_id
        record = record_of(value, expires_at=call.expires_at if call is not None and is_of_call else None)
        if record.line != line:
            raise BadExport(f"line {number}: not in the form that Duetime writes")
        records.append(record)
    return records


def resumed(file: BinaryIO, header: Header) -> Written | None:
    """Find the last valid checkpoint of an interrupted export, and position the file there for truncation.

    None: there is no checkpoint, so the export has to start again. Raises ``BadExport`` if the file is not an export
    of this store, ``TransferRefused`` if the store was served since.
    """
    written = Written()
    found: tuple[int, Checkpoint | Trailer, Checksum] | None = None
    checksum = Checksum()
    first = file.readline(MAX_LINE_BYTES + 1)
    if not first.endswith(b"\n") and (first.startswith(HEADER_START) or HEADER_START.startswith(first)):
        return None
    begun = read_header(first.rstrip(b"\n"))
    if (begun.source, begun.source_mark) != (header.source, header.source_mark):
        raise BadExport("the file is an export of another store: resume it with the same --store")
    if begun.leases_mark and header.leases_mark and begun.leases_mark != header.leases_mark:
        raise TransferRefused(
            "the store was served since the export began, so the rest would not fit: remove the file and start again"
        )
    checksum.add(first[:-1])
    while (line := file.readline(MAX_LINE_BYTES + 1)).endswith(b"\n"):
        line = line[:-1]
        mark = _mark(line)
        if mark is not None:
            if mark.checksum != checksum.text():
                break
            checksum.add(line)
            found = file.tell(), mark, checksum.copy()
            if isinstance(mark, Trailer):
                break
        else:
            checksum.add(line)
    if found is None:
        return None
    offset, mark, written.checksum = found
    written.position = mark.position if isinstance(mark, Checkpoint) else None
    written.is_complete = isinstance(mark, Trailer)
    written.totals.restore(mark.counts, mark.digests)
    file.seek(offset)
    return written


def _mark(line: bytes) -> Checkpoint | Trailer | None:
    """Parse a checkpoint or trailer. None for another line or a damaged one: the next checksum differs."""
    try:
        if line.startswith(CHECKPOINT_START):
            return read_line(Checkpoint, line, 0)
        if line.startswith(TRAILER_START):
            return read_line(Trailer, line, 0)
    except BadExport:
        pass
    return None
