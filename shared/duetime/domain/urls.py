"""URLs as they may be shown."""

from __future__ import annotations

import re

_QUERY_OR_FRAGMENT = re.compile(r"[?#]")


def without_query(url: str) -> str:
    """Return ``url`` up to its query or fragment, which may carry secrets."""
    return _QUERY_OR_FRAGMENT.split(url, maxsplit=1)[0]
