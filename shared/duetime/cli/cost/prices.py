"""Reads a dated table of list prices. ``prices.json`` beside this module is the one that is shipped."""

from __future__ import annotations

from datetime import date
from importlib.resources import files
from itertools import pairwise

from pydantic import BaseModel, ConfigDict, Field, ValidationError


class PricesInvalid(ValueError):
    """A table of prices cannot be used. The message says where and why."""


class Price(BaseModel):
    """The price of a unit, in US dollars.

    ``free``: units a month that every account has for nothing, for ever. ``above``: a quantity, and the price of what
    lies above it. ``plans``: a quantity up to which all costs a flat amount.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    unit: str = Field(min_length=1)
    usd: float = Field(ge=0, allow_inf_nan=False)
    free: float = Field(default=0, ge=0, allow_inf_nan=False)
    above: tuple[tuple[float, float], ...] = ()
    plans: tuple[tuple[float, float], ...] = ()

    def cost(self, quantity: float) -> float:
        """Return what ``quantity`` units cost, in dollars, by the units or by the cheapest plan that holds them."""
        steps = [(0.0, self.usd), *sorted(self.above), (float("inf"), 0.0)]
        by_unit = sum(
            (min(quantity, end) - start) * usd for (start, usd), (end, _) in pairwise(steps) if quantity > start
        )
        return min([by_unit, *(usd for limit, usd in self.plans if quantity <= limit)])


class PriceTable(BaseModel):
    """List prices of one day in one region."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    date: date
    region: str = Field(min_length=1)
    sources: tuple[str, ...] = ()
    prices: dict[str, Price]


def shipped_text() -> str:
    """Return the shipped table as it is written."""
    return files(__package__).joinpath("prices.json").read_text(encoding="utf-8")


def read_prices(text: str) -> PriceTable:
    """Parse a table, which must have the prices of the shipped one. Raises ``PricesInvalid``."""
    try:
        table = PriceTable.model_validate_json(text)
    except ValidationError as error:
        (first, *_) = error.errors(include_url=False, include_context=False, include_input=False)
        where = ".".join(str(each) for each in first["loc"])
        raise PricesInvalid(f"{where}: {first['msg']}" if where else first["msg"]) from None
    known = PriceTable.model_validate_json(shipped_text()).prices.keys()
    for problem, names in (("lacks", known - table.prices.keys()), ("has unknown", table.prices.keys() - known)):
        if names:
            raise PricesInvalid(f"prices {problem} {', '.join(sorted(names))}")
    return table
