"""Files of exports: readable by their owner alone, and under their name only when they are complete."""

from __future__ import annotations

import fcntl
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from duetime.moving.errors import BadExport, MoveFailed, MoveRefused
from duetime.moving.exporting import Written
from duetime.moving.lines import Header
from duetime.moving.reading import resumed

STANDARD = "-"
"""Stands for standard input or standard output."""
_MODE = 0o600


def partial_path(path: Path) -> Path:
    """What an export is called until it is complete."""
    return path.with_name(f"{path.name}.partial")


@contextmanager
def export_file(name: str, header: Header, *, is_resumed: bool) -> Iterator[tuple[BinaryIO, Written | None]]:
    """The file to write to and what it has already. At the end of the block it is durable and gets its name.

    Raises ``MoveRefused`` for a name that is taken, ``BadExport`` as ``resumed`` does, and ``MoveFailed`` when it
    cannot be written.
    """
    if name == STANDARD:
        if is_resumed:
            raise MoveRefused("an export to standard output cannot be resumed")
        if sys.stdout is None:
            raise MoveRefused("standard output is closed")
        with _explained("standard output"), _without_second_complaint():
            yield sys.stdout.buffer, None
            sys.stdout.buffer.flush()
        return
    path = Path(name)
    with _explained(name):
        if path.exists():
            raise MoveRefused(f"{path} exists; an export does not write over it")
        partial = partial_path(path)
        if partial.exists() and not is_resumed:
            raise MoveRefused(f"{partial} exists: go on with it by --resume, or remove it")
    with _explained(str(partial)):
        descriptor = os.open(partial, os.O_RDWR | os.O_CREAT, _MODE)
        with open(descriptor, "r+b") as file:  # noqa: PTH123  (it is a descriptor)
            _take(file, partial)
            try:
                written = resumed(file, header)
            except (BadExport, MoveRefused) as error:
                raise type(error)(f"{partial}: {error.message}") from error
            if written is None:
                file.seek(0)
            file.truncate()
            yield file, written
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            raise MoveRefused(f"{path} was made meanwhile; the export is whole, and is {partial}")
        partial.replace(path)
        _make_durable(path.parent)


def _take(file: BinaryIO, partial: Path) -> None:
    """For this process and for this user alone, whoever made the file before."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise MoveRefused(f"{partial} is being written by another export") from None
    os.fchmod(file.fileno(), _MODE)


@contextmanager
def import_file(name: str) -> Iterator[BinaryIO]:
    """Raises ``BadExport`` for a file that cannot be opened or read; those of the block get the file's name."""
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
            raise BadExport(f"the export is not complete: go on with {partial} by `duetime export --resume`")
        with path.open("rb") as file:
            yield file
    except OSError as error:
        raise BadExport(f"{shown} cannot be read: {error.strerror}") from error
    except BadExport as error:
        raise BadExport(f"{shown}: {error.message}") from error


def share_read(file: BinaryIO) -> Callable[[object], float | None]:
    """How much of ``file`` has been read, whenever that is asked; None for a pipe, of which nobody knows the end."""
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
        raise MoveFailed(f"{name} cannot be written: {error.strerror}") from error


@contextmanager
def _without_second_complaint() -> Iterator[None]:
    """Where standard output takes no more, what is left in its buffer goes nowhere, or the interpreter would try
    again at its end and say so in its own words and with its own exit code."""
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
