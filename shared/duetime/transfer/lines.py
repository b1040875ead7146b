"""Defines the lines of a file that are not records: header, checkpoints, trailer. docs/transfer.md describes them.

A checkpoint has the position in the source after the records before it, and the SHA-256 of all bytes before its own
line. So has the trailer, without which a file is not complete.
"""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, ValidationError

from duetime.domain.times import format_instant
from duetime.transfer.errors import BadExport
from duetime.transfer.models import Count, Instant, Model, what_is_wrong
from duetime.transfer.records import as_line
from duetime.transfer.totals import Totals

FORMAT = "duetime-export"
VERSION = 1
MAX_LINE_BYTES = 64 * 1024 * 1024
"""Far more than any record has: a payload is at most 256 KiB, and JSON escapes at most six bytes for one."""

HEADER_START = b'{"kind":"header",'
CHECKPOINT_START = b'{"kind":"checkpoint",'
TRAILER_START = b'{"kind":"trailer",'
_PACKED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ", b"BZh", b"PK\x03\x04")
"""The first bytes of gzip, zstd, xz, bzip2 and zip files."""

_Checksum = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
_Totals = dict[str, Count]
_Digests = dict[str, _Checksum]


class Header(Model):
    """Describes the source: the scheme of its URL, a hash that tells stores apart (``source_mark``), and whether
    the store was served since (a hash; empty: not checked).
    """

    kind: Literal["header"] = "header"
    format: Literal["duetime-export"] = "duetime-export"
    version: Annotated[int, Field(ge=1)] = VERSION
    exported_at: Instant
    source: str
    source_mark: str
    leases_mark: str = ""
    program: str


class Position(Model):
    """Says what to read next. ``of``: the namespace or tenant, in sections that are read by namespace or tenant."""

    section: Literal["secrets", "namespaces", "apiKeys", "timers", "serviceCalls", "events", "end"]
    of: str = ""
    cursor: str | None = None


class Checkpoint(Model):
    kind: Literal["checkpoint"]
    position: Position
    counts: _Totals
    digests: _Digests
    checksum: _Checksum


class Trailer(Model):
    kind: Literal["trailer"]
    counts: _Totals
    digests: _Digests
    checksum: _Checksum


M = TypeVar("M", bound=Model)


def header_line(header: Header) -> bytes:
    fields = header.model_dump(mode="json", by_alias=True) | {"exportedAt": format_instant(header.exported_at)}
    return as_line({name: value for name, value in fields.items() if value != ""})


def checkpoint_line(position: Position, totals: Totals, checksum: str) -> bytes:
    shown = position.model_dump(by_alias=True, exclude_none=True)
    return as_line({"kind": "checkpoint", "position": shown, **_totals(totals), "checksum": checksum})


def trailer_line(totals: Totals, checksum: str) -> bytes:
    return as_line({"kind": "trailer", **_totals(totals), "checksum": checksum})


def read_line(model: type[M], line: bytes, number: int) -> M:
    """Parse a line as ``model``. Raises ``BadExport``."""
    try:
        return model.model_validate_json(line)
    except ValidationError as error:
        raise BadExport(f"line {number}: {what_is_wrong(error)}") from None


def read_header(line: bytes) -> Header:
    """Parse the header. Raises ``BadExport`` for a file that is no export, and for one of a newer version."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict) or fields.get("kind") != "header" or fields.get("format") != FORMAT:
        packed = ": it is compressed, decompress it first" if line.startswith(_PACKED) else ""
        raise BadExport(f"this is not an export of Duetime{packed or ': the first line is not its header'}")
    version = fields.get("version")
    if isinstance(version, int) and version > VERSION:
        raise BadExport(
            f"the file has version {version} of the format, this program reads version {VERSION}: use a newer program"
        )
    return read_line(Header, line, 1)


class Checksum:
    """Computes the SHA-256 of lines, line ends included."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, line: bytes) -> None:
        self._hash.update(line)
        self._hash.update(b"\n")

    def text(self) -> str:
        return self._hash.hexdigest()

    def copy(self) -> Checksum:
        copied = Checksum()
        copied._hash = self._hash.copy()
        return copied


def _totals(totals: Totals) -> dict[str, Any]:
    return {"counts": totals.shown_counts(), "digests": totals.shown_digests()}
