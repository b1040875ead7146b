"""How much of a store is read at once."""

from __future__ import annotations

import pytest

from duetime.stores.port.pages import Page
from duetime.transfer import scan
from duetime.transfer.lines import Position
from duetime.transfer.records import CatalogueSecret, Record, record_of

ITEMS = 400


def read_lengths(item_bytes: list[int]) -> list[int]:
    """How many items each page of a list asks for, when the items of its pages are so long."""
    asked: list[int] = []

    def read(cursor: str | None, limit: int) -> Page[Record]:
        asked.append(limit)
        length = item_bytes[len(asked) - 1]
        records = [record_of(CatalogueSecret("n", b"x" * length))] * limit
        return Page(records, None if len(asked) == len(item_bytes) else str(len(asked)))

    stage = scan._Stage("timers", "orders", read, ITEMS)
    after = Position(section="events")
    pages = list(scan._pages_of(stage, None, after))
    assert [len(page.records) for page in pages] == asked
    assert pages[-1].next == after
    assert [page.next.cursor for page in pages[:-1]] == [str(number) for number in range(1, len(pages))]
    return asked


@pytest.fixture(autouse=True)
def _small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "_LARGE_PAGE_BYTES", 40_000)


def test_small_things_are_read_many_at_once() -> None:
    assert read_lengths([1] * 4) == [ITEMS] * 4


def test_large_things_are_read_few_at_once_down_to_one() -> None:
    assert read_lengths([60_000] * 11) == [400, 200, 100, 50, 25, 12, 6, 3, 1, 1, 1]


def test_after_large_things_come_more_at_once_again() -> None:
    assert read_lengths([600, 600, 1, 1, 1, 1]) == [400, 200, 100, 200, 400, 400]
