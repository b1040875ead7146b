"""Conditional requests (RFC 9110, section 13): an ETag is a revision in quotes.

Which preconditions a write honours is a property of its route (``routes.Route``); the router refuses the others
before the endpoint sees them, so none is passed over in silence.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from duetime.api.http.request import Reply, Request
from duetime.domain.errors import InvalidInput

IF_MATCH: Final = "If-Match"
IF_NONE_MATCH: Final = "If-None-Match"
_PRECONDITIONS: Final = (IF_MATCH, IF_NONE_MATCH, "If-Unmodified-Since")
"""What keeps a write from being carried out. (If-Modified-Since is for reads, If-Range for parts.)"""

_TAG = re.compile(r'[ \t]*(W/)?"([\x21\x23-\x7e\x80-\xff]*)"[ \t]*')
_REVISION = re.compile(r"[1-9][0-9]{0,17}")


@dataclass(frozen=True, slots=True)
class EntityTags:
    """``is_any`` for ``*``. A weak tag matches in a weak comparison only."""

    is_any: bool
    strong: frozenset[str] = frozenset()
    weak: frozenset[str] = frozenset()

    def match_strongly(self, revision: int) -> bool:
        return self.is_any or str(revision) in self.strong

    def match_weakly(self, revision: int) -> bool:
        return self.match_strongly(revision) or str(revision) in self.weak

    def match_text(self, tag: str) -> bool:
        """Tell whether a tag that is no revision matches in a weak comparison."""
        return self.is_any or tag in self.strong or tag in self.weak

    def single_revision(self) -> int | None:
        """Return the revision, when one strong tag is all there is and it can be a revision: no need to read
        first."""
        if self.is_any or self.weak or len(self.strong) != 1:
            return None
        (tag,) = self.strong
        return int(tag) if _REVISION.fullmatch(tag) else None


def etag(revision: int) -> str:
    return f'"{revision}"'


def refuse_unsupported(request: Request, supported: Sequence[str]) -> None:
    """Raise ``InvalidInput`` when a write has a precondition that is not ``supported``: it must not be ignored."""
    for name in _PRECONDITIONS:
        if name not in supported and request.header(name.lower()) is not None:
            known = f"only {' and '.join(supported)}" if supported else "no precondition"
            raise InvalidInput(name, f"is not possible here: this operation has {known}")


def if_match(request: Request) -> EntityTags | None:
    return _entity_tags(request, IF_MATCH)


def if_none_match(request: Request) -> EntityTags | None:
    return _entity_tags(request, IF_NONE_MATCH)


def not_modified(request: Request, revision: int) -> Reply | None:
    """Make the 304 for a read whose ``If-None-Match`` names the revision."""
    known = if_none_match(request)
    if known is None or not known.match_weakly(revision):
        return None
    return Reply(status=304, headers={"etag": etag(revision)})


def _entity_tags(request: Request, name: str) -> EntityTags | None:
    """Return the tags of a header; None when it is not there. Raises ``InvalidInput`` when it is malformed."""
    value = request.header(name.lower())
    if value is None:
        return None
    if value.strip(" \t") == "*":
        return EntityTags(is_any=True)
    strong: set[str] = set()
    weak: set[str] = set()
    index = 0
    while index <= len(value):
        match = _TAG.match(value, index)
        if match is None or value[match.end() : match.end() + 1] not in ("", ","):
            raise InvalidInput(name, 'must be "*" or a list of entity tags in double quotes')
        (weak if match[1] else strong).add(match[2])
        index = match.end() + 1
    return EntityTags(False, frozenset(strong), frozenset(weak))
