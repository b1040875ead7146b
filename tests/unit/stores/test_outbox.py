"""Which events the outbox hands out, where a backend reads while others write."""

from __future__ import annotations

from duetime.stores.backend import Query, Scan
from duetime.stores.core.store import Store
from duetime.stores.entities import EVENT, UNPUBLISHED
from duetime.testing.contract import call_steps as steps
from tests.support.clock import NOW
from tests.support.dictionary import DictionaryBackend


class WritingBackend(DictionaryBackend):
    """Of a first page of whole events it does not see the last: that is written only then."""

    is_written = False

    def scan(self, query: Query) -> Scan:
        page = super().scan(query)
        if query.path is not UNPUBLISHED or query.fields == ("tenant_id",) or self.is_written:
            return page
        self.is_written = True
        assert page.end == EVENT.key_of(page.rows[-1])
        return Scan(page.rows[:-1], page.end)


def test_an_event_that_is_written_at_the_end_of_a_page_is_not_overtaken() -> None:
    store = Store(WritingBackend())
    submitted = [steps.submit(store.calls) for _ in range(27)]  # each with two events, and a page has 50
    first = store.outbox.unpublished_of(steps.ref(submitted[0]), limit=1)
    store.outbox.mark_published(first, now=NOW)

    found = [stored.event for stored in store.outbox.unpublished(limit=50)]

    assert [event.sequence for event in found if event.aggregate_id == submitted[25].call_id] == []
    assert [event.sequence for event in found if event.aggregate_id == submitted[26].call_id] == [1]
    assert len(store.outbox.unpublished(limit=100)) == 53
