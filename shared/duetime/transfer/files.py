"""Opens export files: only the owner can read them, and they get their name when they are complete."""

from __future__ import annotations

import fcntl
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from duetime.transfer.errors import BadExport, TransferFailed, TransferRefused
from duetime.transfer.exporting import Written
from duetime.transfer.lines import Header
from duetime.transfer.reading import resumed

STANDARD = "-"
"""Names standard input or standard output."""
_MODE = 0o600


def partial_path(path: Path) -> Path:
    """Return the path of an export that is not complete yet."""
    return path.with_name(f"{path.name}.partial")


@contextmanager
def export_file(name: str, header: Header, *, is_resumed: bool) -> Iterator[tuple[BinaryIO, Written | None]]:
    """Open the file to write to; give it and what it has already. At the end of the block it is synced and renamed.

    Raises ``TransferRefused`` for a name that is taken, ``BadExport`` as ``resumed`` does, and ``TransferFailed`` if
    the file cannot be written.
    """
    if name == STANDARD:
        if is_resumed:
            raise TransferRefused("an export to standard output cannot be resumed")
        if sys.stdout is None:
            raise TransferRefused("standard output is closed")
        with _explained("standard output"), _without_second_complaint():
            yield sys.stdout.buffer, None
            sys.stdout.buffer.flush()
        return
    path = Path(name)
    with _explained(name):
        if path.exists():
            raise TransferRefused(f"{path} exists; an export does not write over it")
        partial = partial_path(path)
        if partial.exists() and not is_resumed:
            raise TransferRefused(f"{partial} exists: continue it with --resume, or remove it")
    with _explained(str(partial)):
        descriptor = os.open(partial, os.O_RDWR | os.O_CREAT, _MODE)
        with open(descriptor, "r+b") as file:  # noqa: PTH123  (it is a descriptor)
            _take(file, partial)
            try:
                written = resumed(file, header)
            except (BadExport, TransferRefused) as error:
                raise type(error)(f"{partial}: {error.message}") from error
            if written is None:
                file.seek(0)
            file.truncate()
            yield file, written
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            raise TransferRefused(f"{path} was made meanwhile; the export is complete, in {partial}")
        partial.replace(path)
        _make_durable(path.parent)


def _take(file: BinaryIO, partial: Path) -> None:
    """Lock the file for this process and make it readable by this user alone, whoever created it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise TransferRefused(f"{partial} is being written by another export") from None
    os.fchmod(file.fileno(), _MODE)


@contextmanager
def import_file(name: str) -> Iterator[BinaryIO]:
    """Open the file to read. Raises ``BadExport`` if that fails, and adds the file's name to those of the block."""
    shown = "standard input" if name == STANDARD else str(Path(name))
    try:
        if name == STANDARD:
            if sys.stdin is None:
                raise BadExport("it is closed")
            yield sys.stdin.buffer
            return
        path = Path(name)
        if not path.exists() and partial_path(path).exists():
            partial = partial_path(path)
            raise BadExport(f"the export is not complete: continue {partial} with `duetime export --resume`")
        with path.open("rb") as file:
            yield file
    except OSError as error:
        raise BadExport(f"{shown} cannot be read: {error.strerror}") from error
    except BadExport as error:
        raise BadExport(f"{shown}: {error.message}") from error


def share_read(file: BinaryIO) -> Callable[[object], float | None]:
    """Return a function that tells which share of ``file`` was read; None for a pipe, whose length is unknown."""
    try:
        status = os.fstat(file.fileno())
    except OSError:
        return lambda _: None
    size = status.st_size if stat.S_ISREG(status.st_mode) else 0
    return lambda _: file.tell() / size if size else None


@contextmanager
def _explained(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise TransferFailed(f"{name} cannot be written: {error.strerror}") from error


@contextmanager
def _without_second_complaint() -> Iterator[None]:
    """Discard what is left in the buffer of standard output after it failed.

    Otherwise the interpreter would try again at its end, print its own message and set its own exit code.
    """
    try:
        yield
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        raise


def _make_durable(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
