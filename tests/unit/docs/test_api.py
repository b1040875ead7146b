"""The pages about the API have every route, by method and path."""

from __future__ import annotations

import re
from pathlib import Path

from duetime.api.http.batches import MAX_BATCH_ITEMS
from duetime.api.http.parsing import MAX_BATCH_BYTES, MAX_BODY_BYTES
from duetime.api.routes import TIMER_ROUTES, call_routes
from duetime.domain.timers import MAX_PAYLOAD_BYTES

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


def test_the_limits_of_bodies_are_documented() -> None:
    page = (DOCS / "api.md").read_text(encoding="utf-8")
    batch = f"{MAX_BATCH_BYTES // 1024**2} MiB"
    assert f"with over {MAX_BATCH_ITEMS} items or {batch}," in page
    assert (
        f"payload over {MAX_PAYLOAD_BYTES // 1024} KiB, body over {MAX_BODY_BYTES // 1024**2} MiB (batch {batch})"
        in page
    )
