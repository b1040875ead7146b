"""The pages about the API have every route, by method and path."""

from __future__ import annotations

import re
from pathlib import Path

from duetime.api.routes import TIMER_ROUTES, call_routes

DOCS = Path(__file__).parents[3] / "docs"


def form(path: str) -> str:
    """``path`` without the names of its parameters."""
    return re.sub(r"<\w+>|\{\w+\}", "{}", path)


def documented() -> set[tuple[str, str]]:
    text = "".join((DOCS / name).read_text(encoding="utf-8") for name in ("api.md", "service-calls.md", "events.md"))
    found = re.findall(r"\b(GET|PUT|POST|PATCH|DELETE) +(/[\w/{}.-]*)", text)
    return {(method, form(path)) for method, path in found}


def test_every_route_is_documented() -> None:
    routes = {(route.method, form(route.path)) for route in (*TIMER_ROUTES, *call_routes())}
    assert routes - documented() == set()
