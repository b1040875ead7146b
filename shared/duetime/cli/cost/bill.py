"""Turns charges, quantities of what has a price, into a bill."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from duetime.cli.cost.prices import PriceTable


class Charge(NamedTuple):
    """``price`` names a price of the table, in whose unit ``quantity`` is."""

    name: str
    price: str
    quantity: float


Charges = Iterator[Charge]


@dataclass(frozen=True, slots=True)
class Line:
    """``price`` is that of a first unit; ``usd`` is what all units cost."""

    name: str
    quantity: float
    unit: str
    price: float
    usd: float


@dataclass(frozen=True, slots=True)
class Bill:
    """What all charges cost."""

    lines: tuple[Line, ...]

    @property
    def total_usd(self) -> float:
        return sum(line.usd for line in self.lines)


def bill_of(charges: Iterable[Charge], table: PriceTable, *, has_free_tier: bool) -> Bill:
    """Make the bill. ``has_free_tier``: what an account has free is used for these charges alone, the first ones
    first."""
    used: defaultdict[str, float] = defaultdict(float)
    lines = []
    for charge in charges:
        price = table.prices[charge.price]
        before, after = used[charge.price], used[charge.price] + charge.quantity
        used[charge.price] = after
        free = price.free if has_free_tier else 0.0
        usd = price.cost(max(0.0, after - free)) - price.cost(max(0.0, before - free))
        lines.append(Line(charge.name, charge.quantity, price.unit, price.usd, usd))
    return Bill(tuple(lines))
