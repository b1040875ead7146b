"""Files that are damaged, incomplete or none at all."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
from collections.abc import Callable, Iterator

import pytest

from duetime.stores.core.store import Store
from duetime.transfer.errors import BadExport, TransferRefused
from duetime.transfer.exporting import export
from duetime.transfer.lines import CHECKPOINT_START
from duetime.transfer.reading import ExportReader, resumed
from duetime.transfer.totals import Totals
from tests.support.clock import NOW
from tests.support.stores import memory_store
from tests.support.transfer import HEADER, exported, fill


@pytest.fixture(scope="module")
def source() -> Iterator[Store]:
    with memory_store() as store:
        fill(store, timers=1200)
        yield store


@pytest.fixture(scope="module")
def data(source: Store) -> bytes:
    return exported(source)


def read(data: bytes) -> Totals:
    reader = ExportReader(io.BytesIO(data))
    for _ in reader.pages():
        pass
    return reader.totals


def refusal(data: bytes) -> str:
    with pytest.raises(BadExport) as caught:
        read(data)
    return caught.value.message


def checkpoints(data: bytes) -> list[int]:
    """The places of the checkpoints among the lines, counted from 0."""
    return [at for at, line in enumerate(data.splitlines()) if line.startswith(CHECKPOINT_START)]


def test_a_whole_file_is_read(data: bytes) -> None:
    assert len(checkpoints(data)) >= 3
    assert read(data).total == len(data.splitlines()) - 2 - len(checkpoints(data))


@pytest.mark.parametrize("end", [b"\n", b""])
@pytest.mark.parametrize("line", [b"", b"{}", b'{"kind":"timer"}', b"\x7fELF", b'["header"]'])
def test_something_else_is_told_from_an_export(line: bytes, end: bytes) -> None:
    assert refusal(line + end) == "this is not an export of Duetime: the first line is not its header"


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_a_compressed_file_is_told_as_such(data: bytes, pack: Callable[[bytes], bytes]) -> None:
    assert refusal(pack(data)) == "this is not an export of Duetime: it is compressed, decompress it first"


def test_a_newer_format_is_refused_whatever_its_header_has(data: bytes) -> None:
    header = json.loads(data.splitlines()[0]) | {"version": 2, "colour": "red"}

    assert refusal(json.dumps(header).encode() + b"\n") == (
        "the file has version 2 of the format, this program reads version 1: use a newer program"
    )


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_torn_file_is_not_complete(data: bytes, share: float) -> None:
    torn = data[: int(len(data) * share)].rstrip(b"\n")

    assert refusal(torn) == (
        f"line {len(torn.splitlines())} is cut off: it has no trailer, so it is not complete: "
        "continue it with `duetime export --resume`"
    )


def test_a_file_that_ends_behind_a_line_is_not_complete(data: bytes) -> None:
    lines = data.splitlines(keepends=True)

    assert refusal(b"".join(lines[:-1])).startswith(f"the file ends after line {len(lines) - 1}: it has no trailer")


@pytest.mark.parametrize("page", [0, 1, 2])
def test_an_edited_line_is_found_before_its_page_is_used(data: bytes, page: int) -> None:
    lines = data.splitlines(keepends=True)
    end = checkpoints(data)[page]
    lines[end - 3] = lines[end - 3].replace(b'"attempts":0', b'"attempts":1')
    reader = ExportReader(io.BytesIO(b"".join(lines)))
    pages: list[object] = []

    with pytest.raises(BadExport, match=f"line {end + 1}: the checksum does not match what comes before it"):
        pages.extend(reader.pages())

    assert len(pages) == page


def test_a_line_that_is_missing_is_found(data: bytes) -> None:
    lines = data.splitlines(keepends=True)
    del lines[700]

    assert "the checksum does not match what comes before it" in refusal(b"".join(lines))


def test_more_behind_the_trailer_is_refused(data: bytes) -> None:
    assert refusal(data + b"{}\n") == f"line {len(data.splitlines()) + 1}: there is more after the trailer"


@pytest.mark.parametrize("share", [0.0, 0.001, 0.2, 0.5, 0.77, 0.999])
def test_an_export_that_was_cut_short_is_gone_on_with_to_the_same_records(
    source: Store, data: bytes, share: float
) -> None:
    file = io.BytesIO(data[: int((len(data) - 1) * share)])
    written = resumed(file, HEADER)
    if written is None:
        file.seek(0)
    file.truncate()

    export(source, file, now=NOW, header=HEADER, written=written)

    assert file.getvalue() == data


def test_what_cannot_be_gone_on_with_is_refused(data: bytes) -> None:
    other = HEADER.model_copy(update={"source_mark": "1" * 16})
    with pytest.raises(BadExport, match="an export of another store"):
        resumed(io.BytesIO(data), other)
    with pytest.raises(BadExport, match="not an export of Duetime"):
        resumed(io.BytesIO(b"something else\n"), HEADER)


def test_a_complete_file_needs_no_more_than_its_name(source: Store, data: bytes) -> None:
    """A process that was killed between the two."""
    file = io.BytesIO(data + b"{")

    written = resumed(file, HEADER)

    assert written is not None
    assert written.is_complete
    file.truncate()
    assert export(source, file, now=NOW, header=HEADER, written=written).total == read(data).total
    assert file.getvalue() == data


def test_a_store_that_was_served_since_is_not_gone_on_with(source: Store) -> None:
    before, after = (HEADER.model_copy(update={"leases_mark": mark * 16}) for mark in "01")
    file = io.BytesIO()
    export(source, file, now=NOW, header=before)
    torn = file.getvalue()[:-100]

    with pytest.raises(TransferRefused, match="the store was served since the export began"):
        resumed(io.BytesIO(torn), after)
    for header in (before, HEADER):
        assert resumed(io.BytesIO(torn), header) is not None


def test_an_export_is_complete_only_if_that_is_confirmed(source: Store) -> None:
    file = io.BytesIO()

    def confirm() -> None:
        raise TransferRefused("served")

    with pytest.raises(TransferRefused):
        export(source, file, now=NOW, header=HEADER, confirm=confirm)
    assert refusal(file.getvalue()).startswith("the file ends after line ")


def test_damage_before_the_last_checkpoint_is_not_gone_on_from(source: Store, data: bytes) -> None:
    lines = data.splitlines(keepends=True)
    first, second, *_ = checkpoints(data)
    lines[second - 1] = lines[second - 1].replace(b'"attempts":0', b'"attempts":1')
    file = io.BytesIO(b"".join(lines[:-1]))

    written = resumed(file, HEADER)

    assert written is not None
    assert file.tell() == len(b"".join(lines[: first + 1]))
    file.truncate()
    export(source, file, now=NOW, header=HEADER, written=written)
    assert file.getvalue() == data
