"""Pages that fit into an answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from duetime.stores.port.pages import Page

T = TypeVar("T")

# A Lambda answers with at most 6 MB of JSON, in which the body is a string: each quote in it takes two bytes.
MAX_ANSWER_CHARACTERS = 2_500_000


def fitting_page(
    fetch: Callable[[int], Page[T]], to_json: Callable[[T], str], *, limit: int
) -> tuple[list[str], str | None]:
    """The items of a page as JSON, and the store's cursor behind it.

    ``fetch`` reads at most so many items. Large ones can make a page too big to be answered. A cursor leads behind a
    whole page only, so the store is asked again for as many as fit.
    """
    page = fetch(limit)
    items = [to_json(item) for item in page.items]
    while len(items) > 1 and sum(map(len, items)) > MAX_ANSWER_CHARACTERS:
        limit = min(fitting(items), limit - 1)
        page = fetch(limit)
        items = [to_json(item) for item in page.items]
    return items, page.next_cursor


def fitting(items: list[str]) -> int:
    """How many of ``items`` make an answer of allowed size; at least one."""
    total = 0
    for count, item in enumerate(items):
        total += len(item)
        if total > MAX_ANSWER_CHARACTERS:
            return max(1, count)
    return len(items)
