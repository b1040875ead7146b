"""Finds the route of a request by its method and path."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import unquote

from duetime.api.http.errors import MethodNotAllowed, RouteNotFound
from duetime.api.http.route import PARAMETER, Route
from duetime.api.http.timer_paths import routable

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
