"""Time zones, by the rules of the pinned ``tzdata`` package alone.

The files of the machine are not read: workers on machines of different age would disagree on when a schedule is due.
"""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from zoneinfo import ZoneInfo

import tzdata

from duetime.domain.errors import InvalidInput

VERSION: str = tzdata.IANA_VERSION
"""Of the rules, as IANA names it: ``2026f``."""


@cache
def names() -> frozenset[str]:
    """Return the names of all zones, old ones that lead to another name included."""
    return frozenset(files("tzdata").joinpath("zones").read_text(encoding="utf-8").split()) - {"Factory"}


@cache
def zone(name: str) -> ZoneInfo:
    """Return the zone of an IANA name. Raises ``InvalidInput`` for ``timeZone`` when there is none of this name."""
    if name not in names():
        raise InvalidInput("timeZone", _unknown(name))
    with files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


def _unknown(name: str) -> str:
    by_lower_case = {each.lower(): each for each in names()}
    close = get_close_matches(name[:64].strip().lower(), by_lower_case, n=1, cutoff=0.75)
    hint = f"; did you mean {by_lower_case[close[0]]}?" if close else ""
    return f"must be a name of the IANA time zone database {VERSION}, like Europe/Berlin{hint}"
