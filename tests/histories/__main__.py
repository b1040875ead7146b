"""Records histories with one version of the code and compares them with another:

    python -m tests.histories record FILE [--runs 1000] [--first-seed 0]    in a checkout of the old version
    python -m tests.histories compare FILE [--without-rows]                 in one of the new

``FILE`` has one JSON document a line, compressed by gzip. Exits with 1 when histories differ.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import logging
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from tests.histories.comparing import differences
from tests.histories.plan import make_plan
from tests.histories.playing import History, play

_SHOWN = 20
"""Differences of one history; more of them are mostly the same again."""


class _TimerInOrder(asyncio.TimerHandle):
    """Timers of one instant run in the order in which they were set.

    Asyncio promises no order, and virtual time has many such timers: histories would differ for nothing.
    """

    _numbers = count()

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._number = next(self._numbers)

    def __lt__(self, other: Any) -> bool:
        return (self.when(), self._number) < (other.when(), other._number)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.histories", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    record_ = commands.add_parser("record")
    record_.add_argument("file", type=Path)
    record_.add_argument("--runs", type=int, default=1000)
    record_.add_argument("--first-seed", type=int, default=0)
    compare_ = commands.add_parser("compare")
    compare_.add_argument("file", type=Path)
    compare_.add_argument("--without-rows", action="store_true", help="the stored shapes are others now")
    given = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    asyncio.events.TimerHandle = _TimerInOrder  # type: ignore[misc]
    with ProcessPoolExecutor() as pool:
        if given.command == "record":
            seeds = range(given.first_seed, given.first_seed + given.runs)
            return record(given.file, pool.map(_played, seeds, chunksize=4))
        return compare(pool.map(partial(_compared, not given.without_rows), _lines(given.file), chunksize=4))


def record(file: Path, histories: Iterator[str]) -> int:
    with gzip.open(file, "wt") as out:
        number = 0
        for number, history in enumerate(histories, start=1):  # noqa: B007
            out.write(history + "\n")
    print(f"{number} histories recorded")
    return 0


def compare(compared: Iterator[tuple[int, list[str]]]) -> int:
    number = different = 0
    for number, (seed, found) in enumerate(compared, start=1):  # noqa: B007
        different += bool(found)
        for line in found[:_SHOWN]:
            print(f"seed {seed}: {line}")
        if len(found) > _SHOWN:
            print(f"seed {seed}: and {len(found) - _SHOWN} more")
    print(f"{number} histories compared, {different} differ")
    return 1 if different or not number else 0


def _lines(file: Path) -> Iterator[str]:
    with gzip.open(file, "rt") as recorded:
        yield from recorded


def _played(seed: int) -> str:
    return json.dumps(play(make_plan(seed)), separators=(",", ":"))


def _compared(with_rows: bool, line: str) -> tuple[int, list[str]]:
    before: History = json.loads(line)
    after: History = json.loads(_played(before["seed"]))
    return before["seed"], differences(before, after, with_rows=with_rows)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
