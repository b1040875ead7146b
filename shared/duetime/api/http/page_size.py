"""Pages that fit into a response."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from duetime.api.http.request import Reply
from duetime.api.http.responses import Page, ResponseModel, encode
from duetime.stores.port import pages

T = TypeVar("T")
ResponseT = TypeVar("ResponseT", bound=ResponseModel)

# A Lambda answers with at most 6 MB of JSON, in which the body is a string: each quote in it takes two bytes.
MAX_PAGE_CHARACTERS: Final = 2_500_000


def page_reply(
    page_type: Callable[[list[ResponseT], str | None], Page[ResponseT]],
    fetch: Callable[[int], pages.Page[T]],
    respond: Callable[[T], ResponseT],
    *,
    limit: int,
    to_cursor: Callable[[str | None], str | None],
    encode: Callable[[ResponseModel], str] = encode,
) -> Reply:
    """Read a page by ``fetch``, at most so many items, and make the response of each by ``respond``.

    Large ones can make a page too big to be sent. A cursor leads behind a whole page only, so the store is asked
    again for as many as fit.
    """
    while True:
        page = fetch(limit)
        items = [respond(item) for item in page.items]
        body = encode(page_type(items, to_cursor(page.next_cursor)))
        if len(items) < 2 or len(body) <= MAX_PAGE_CHARACTERS:
            return Reply(status=200, body=body)
        limit = min(_fitting([len(encode(item)) for item in items]), limit - 1)


def _fitting(sizes: list[int]) -> int:
    """Return how many of the items with these sizes make a page of allowed size; at least one."""
    total = 0
    for count, size in enumerate(sizes):
        total += size
        if total > MAX_PAGE_CHARACTERS:
            return max(1, count)
    return len(sizes)
