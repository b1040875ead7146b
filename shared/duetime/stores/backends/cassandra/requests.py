"""What is asked of a session, and the answer that is neither yes nor no."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from duetime.domain.errors import StoreUnavailable

Row: TypeAlias = dict[str, Any]


class Unsettled(StoreUnavailable):
    """The answer to a conditional write was lost: it may have been carried out, now or a moment later."""


@dataclass(frozen=True, slots=True)
class Statement:
    """CQL with ``?`` for each of ``values``. ``cql`` is one of a few texts: it is prepared and kept."""

    cql: str
    values: tuple[Any, ...] = ()
