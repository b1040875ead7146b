"""Cross-origin requests: which pages of other origins a browser lets use the API (Fetch standard, section 3.2).

Only origins that the operator has listed, each exactly. Credentials of the browser (cookies) are never allowed: a
page sends an API key that its user has given it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from duetime.api.http.idempotency import IDEMPOTENCY_KEY, REPLAYED
from duetime.api.http.preconditions import IF_MATCH, IF_NONE_MATCH

_METHODS: Final = "GET, HEAD, POST, PUT, PATCH, DELETE"
_ACCEPTED: Final = ", ".join(
    (
        "Authorization",
        "Content-Type",
        IDEMPOTENCY_KEY,
        IF_MATCH,
        IF_NONE_MATCH,
        "Last-Event-ID",
        "X-Correlation-Id",
        "X-Request-Id",
    )
)
_EXPOSED: Final = ", ".join(
    ("Allow", "ETag", REPLAYED, "Location", "Retry-After", "WWW-Authenticate", "X-Request-Id")
)
_PREFLIGHT_SECONDS: Final = 7200
"""How long a browser need not ask again: the most that Chromium takes."""


class Cors:
    """``origins``: those whose pages may use the API."""

    def __init__(self, origins: frozenset[str]) -> None:
        self._origins = origins

    def headers(self, origin: str | None) -> dict[str, str]:
        """Return what a response to a page of ``origin`` has beside its own headers. None: the request names none."""
        varies = {"vary": "Origin"}  # caches must not give one page what was meant for another
        if origin not in self._origins:
            return varies
        return {"access-control-allow-origin": origin, "access-control-expose-headers": _EXPOSED, **varies}

    def preflight(self, method: str, headers: Mapping[str, str]) -> dict[str, str] | None:
        """Return the headers of the 204 for a browser that asks before it sends a page's request; None for all else.

        ``headers``: of the request, by names in lower case. Nobody looks at the path: the request itself is answered.
        """
        origin = headers.get("origin")
        if method != "OPTIONS" or origin not in self._origins or "access-control-request-method" not in headers:
            return None
        return {
            "access-control-allow-origin": origin,
            "access-control-allow-methods": _METHODS,
            "access-control-allow-headers": _ACCEPTED,
            "access-control-max-age": str(_PREFLIGHT_SECONDS),
            "vary": "Origin",
        }
