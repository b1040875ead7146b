"""Finds the route of a request by its method and path; reads the ids of timers and schedules in paths."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from urllib.parse import quote, unquote

from duetime.api.http.errors import MethodNotAllowed, RouteNotFound
from duetime.api.http.route import PARAMETER, Route
from duetime.domain.errors import InvalidInput
from duetime.domain.ids import SAFE_PREFIX

_ITEM_PATH = re.compile(
    r"(/v1/namespaces/[^/]*/(?:timers|schedules)/)(.+?)"
    r"(/(?:attempts|cancel|fire|redrive|backfill|backfill/cancel|occurrences|pause|resume|trigger"
    r"|firings/[^/]+/[^/]+))?",
    re.DOTALL,
)

_CLOCK_PATHS = ("/v1/clock", "/v1/clock/advance")
_CLOCK_IS_REAL = "the clock of this server is real: tests can move that of `duetime serve --clock virtual`"


class Router:
    """Matches ``routes``. Of several routes that match, the first one counts. Safe to use from many threads."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self._routes: dict[str, list[tuple[re.Pattern[str], Route]]] = {}
        for route in routes:
            pattern = re.compile(PARAMETER.sub(r"(?P<\1>[^/]+)", route.path))
            self._routes.setdefault(route.method, []).append((pattern, route))

    def find(self, method: str, path: str) -> tuple[Route, dict[str, str]]:
        """Return the route for a decoded ``path``, and its decoded path parameters. HEAD is answered as GET.

        Raises ``RouteNotFound``, and ``MethodNotAllowed`` when the path exists with other methods.
        """
        segments = routable(path)
        for pattern, route in self._routes.get("GET" if method == "HEAD" else method, ()):
            match = pattern.fullmatch(segments)
            if match is not None:
                return route, {name: unquote(value) for name, value in match.groupdict().items()}
        allowed = self._methods(segments)
        if not allowed:
            raise RouteNotFound(_CLOCK_IS_REAL if path in _CLOCK_PATHS else "there is nothing at this path")
        raise MethodNotAllowed(f"{method} is not possible here", allowed=sorted(allowed))

    def _methods(self, segments: str) -> set[str]:
        methods = {
            method
            for method, routes in self._routes.items()
            if any(pattern.fullmatch(segments) for pattern, _ in routes)
        }
        return methods and methods | {"OPTIONS"} | ({"HEAD"} if "GET" in methods else set())


def routable(path: str) -> str:
    """Return a decoded path as one that routes can be matched with: every segment percent-encoded.

    What follows ``/timers/`` or ``/schedules/`` is one segment, up to the name of something that it has or that is
    done with it: any other '/' there can only have been part of an id.
    """
    match = _ITEM_PATH.fullmatch(path)
    if match is None:
        return quote(path, errors="replace")
    return quote(match[1], errors="replace") + quote(match[2], safe="", errors="replace") + (match[3] or "")


def read_id(segment: str) -> str:
    """Return the id that a decoded path segment spells. Raises ``InvalidInput``."""
    if not segment.startswith(SAFE_PREFIX):
        return segment
    encoded = segment[len(SAFE_PREFIX) :]
    try:
        raw = encoded.encode("ascii") + b"=" * (-len(encoded) % 4)
        return base64.b64decode(raw, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise InvalidInput("id", f"must be base64url of UTF-8 after {SAFE_PREFIX}") from None
