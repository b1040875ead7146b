"""The lines of a file beside its records: header, checkpoints, trailer. docs/transfer.md describes them.

A checkpoint tells where the source's reading stands behind the records before it, and the SHA-256 of all bytes before
its own line. So does the trailer, without which a file is not complete.
"""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, ValidationError

from duetime.domain.times import format_instant
from duetime.moving.errors import BadExport
from duetime.moving.models import Count, Instant, Model, what_is_wrong
from duetime.moving.records import as_line
from duetime.moving.tally import Tally

FORMAT = "duetime-export"
VERSION = 1
MAX_LINE_BYTES = 64 * 1024 * 1024
"""Far beyond any record: a timer's payload has 256 KiB, and JSON makes at most six times of that."""

HEADER_START = b'{"kind":"header",'
CHECKPOINT_START = b'{"kind":"checkpoint",'
TRAILER_START = b'{"kind":"trailer",'
_PACKED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ", b"BZh", b"PK\x03\x04")
"""What files of gzip, zstd, xz, bzip2 and zip begin with."""

_Checksum = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
_Totals = dict[str, Count]
_Digests = dict[str, _Checksum]


class Header(Model):
    """``source``: the scheme of the source's URL. ``source_mark`` tells stores apart, and tells nothing of them;
    ``leases_mark`` whether a store was served since (empty: nobody looked)."""

    kind: Literal["header"] = "header"
    format: Literal["duetime-export"] = "duetime-export"
    version: Annotated[int, Field(ge=1)] = VERSION
    exported_at: Instant
    source: str
    source_mark: str
    leases_mark: str = ""
    program: str


class Position(Model):
    """What is to be read next. ``of``: the namespace or the tenant, where a section goes through them."""

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


def checkpoint_line(position: Position, tally: Tally, checksum: str) -> bytes:
    shown = position.model_dump(by_alias=True, exclude_none=True)
    return as_line({"kind": "checkpoint", "position": shown, **_totals(tally), "checksum": checksum})


def trailer_line(tally: Tally, checksum: str) -> bytes:
    return as_line({"kind": "trailer", **_totals(tally), "checksum": checksum})


def read_line(model: type[M], line: bytes, number: int) -> M:
    """Raises ``BadExport``."""
    try:
        return model.model_validate_json(line)
    except ValidationError as error:
        raise BadExport(f"line {number}: {what_is_wrong(error)}") from None


def read_header(line: bytes) -> Header:
    """Raises ``BadExport`` for what is no export, and for one of a newer version, whatever else its header has."""
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict) or fields.get("kind") != "header" or fields.get("format") != FORMAT:
        packed = ": it is compressed, unpack it first" if line.startswith(_PACKED) else ""
        raise BadExport(f"this is no export of Duetime{packed or ': the first line is not its header'}")
    version = fields.get("version")
    if isinstance(version, int) and version > VERSION:
        raise BadExport(
            f"the file has version {version} of the format and this program knows version {VERSION}: use a newer one"
        )
    return read_line(Header, line, 1)


class Checksum:
    """The running SHA-256 over lines, their ends included."""

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


def _totals(tally: Tally) -> dict[str, Any]:
    return {"counts": tally.shown_counts(), "digests": tally.shown_digests()}
