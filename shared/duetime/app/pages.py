"""Changes of many, of which each request does a page."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class PageOfWork:
    """``cursor``: where it begins; None: at the first one. With ``dry_run`` nothing is changed, only counted."""

    cursor: str | None
    limit: int
    now: datetime
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class ChangedPage:
    """``affected``: how many were changed, or would be. ``skipped``: those that were not, since an attempt is in
    flight or others changed them meanwhile."""

    affected: int
    skipped: int
    next_cursor: str | None
