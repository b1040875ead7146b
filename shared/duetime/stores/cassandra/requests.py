"""What the parts of the store ask of a session: a few kinds of requests, each prepared once by its text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from duetime.domain.errors import StoreUnavailable

Row: TypeAlias = dict[str, Any]


class Unsettled(StoreUnavailable):
    """The answer to a conditional write was lost: it may have been carried out, now or a moment later."""


@dataclass(frozen=True, slots=True)
class Statement:
    """CQL with ``?`` for each of ``values``. ``cql`` is one of a few texts: it is prepared and kept."""

    cql: str
    values: tuple[Any, ...] = ()


class Requests(Protocol):
    """Thread-safe. Raises ``StoreUnavailable``, ``StoreNotReady`` and ``StoreError``, no error of the driver."""

    def read(self, statement: Statement, *, is_serial: bool = False) -> list[Row]:
        """All rows, by a quorum. ``is_serial``: of one partition, and after whatever conditional write of it had been
        accepted."""
        ...

    def read_each(self, statements: Sequence[Statement]) -> list[list[Row]]:
        """All rows of each, by a quorum; side by side, but for pages after the first: for statements with a LIMIT."""
        ...

    def write(self, statements: Sequence[Statement]) -> None:
        """All of them by a quorum, in no order and not as one; after an error any of them may have been made."""
        ...

    def decide(self, statements: Sequence[Statement]) -> bool:
        """Conditional writes of one partition as one: whether their conditions held. Raises ``Unsettled``."""
        ...

    def decide_each(self, groups: Sequence[Sequence[Statement]]) -> list[bool | StoreUnavailable]:
        """As ``decide`` of each group, side by side: what it answers or raises, be it ``Unsettled``."""
        ...
