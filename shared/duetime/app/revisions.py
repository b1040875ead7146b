"""Conditions on the revision of what is changed (``If-Match``)."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Revisions(Protocol):
    """Those that a condition allows."""

    def match_strongly(self, revision: int) -> bool: ...

    def single_revision(self) -> int | None:
        """Return the only revision that can match, where it is known without reading what is stored."""
        ...


class Revision(NamedTuple):
    """This one only."""

    number: int

    def match_strongly(self, revision: int) -> bool:
        return revision == self.number

    def single_revision(self) -> int | None:
        return self.number
