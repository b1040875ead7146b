"""Documents whose keys are damaged: they hide nothing of the others and break no poll."""

from __future__ import annotations

from typing import Any

import bson
import pytest
from bson.datetime_ms import DatetimeMS

from duetime.domain.namespaces import Namespace
from duetime.domain.times import to_milliseconds
from duetime.stores.decoding import is_whole
from duetime.stores.mongodb.database import OUTBOX, READ_AS, TIMERS
from duetime.stores.mongodb.store import MongoDbStore
from duetime.stores.mongodb.timer_documents import UnreadableError, decode, decode_or_salvage, key_of
from tests.contract import call_steps as steps
from tests.contract.steps import create
from tests.support import calls as make
from tests.support.builders import RETENTION, make_timers, seconds
from tests.support.clock import NOW


@pytest.fixture
def single(store: MongoDbStore) -> Namespace:
    return store.catalogue.create_namespace("single", num_shards=1, dedicated=False, now=NOW)[0]


def polled(store: MongoDbStore, *, limit: int) -> tuple[list[str], int]:
    """The ids of all due timers, and how many documents cannot be read."""
    found: list[str] = []
    unreadable = 0
    cursor: str | None = None
    for _ in range(50):
        page = store.timers.due(0, until=NOW, limit=limit, cursor=cursor)
        found += [timer.timer_id for timer in page.timers]
        unreadable += len(page.unreadable)
        cursor = page.cursor
        if cursor is None:
            return found, unreadable
    raise AssertionError("the pages have no end")


@pytest.mark.parametrize("limit", [1, 2, 100])
@pytest.mark.parametrize("uuid", [None, "text", 7])
def test_timers_without_their_uuid(store: MongoDbStore, single: Namespace, uuid: Any, limit: int) -> None:
    timers = create(store, *make_timers(single, 5))
    change = {"$unset": {"timer_uuid": ""}} if uuid is None else {"$set": {"timer_uuid": uuid}}
    store.database[TIMERS].update_one(key_of(timers[2]), change)

    found, unreadable = polled(store, limit=limit)

    assert sorted(found) == [timers[index].timer_id for index in (0, 1, 3, 4)]
    assert unreadable == 1
    (row,) = (row for each in [store.timers.due(0, until=NOW, limit=100)] for row in each.unreadable)
    store.timers.quarantine([row], now=NOW, expires_at=NOW + RETENTION)
    assert polled(store, limit=limit) == (found, 0)


@pytest.mark.parametrize("at", ["2026-12-20", 7, DatetimeMS(to_milliseconds(NOW) - 2**45)], ids=repr)
def test_timers_due_at_no_instant(store: MongoDbStore, single: Namespace, at: Any) -> None:
    timers = create(
        store, *make_timers(single, 3), *make_timers(single, 1, prefix="later", execute_at=NOW + seconds(5))
    )
    store.database[TIMERS].update_one(key_of(timers[1]), {"$set": {"timer_execute_at": at}})

    assert polled(store, limit=2)[0] == [timers[0].timer_id, timers[2].timer_id]
    assert store.timers.due(0, until=NOW, limit=5).next_attempt_at == NOW + seconds(5)
    assert store.timers.get(single, timers[1].timer_id, now=NOW) is not None


def test_an_event_that_cannot_be_read_holds_up_its_call_alone(
    store: MongoDbStore, caplog: pytest.LogCaptureFixture
) -> None:
    bad = steps.run(store.calls, steps.submit(store.calls))
    good = steps.run(store.calls, steps.submit(store.calls))
    damaged = {"aggregate_id": bad.call_id, "event_sequence": 3}
    store.database[OUTBOX].update_one(damaged, {"$set": {"event_type": "confidential"}})

    found = store.outbox.unpublished(limit=100)
    store.outbox.unpublished(limit=100)

    numbers = {
        call.call_id: [each.event.sequence for each in found if each.event.aggregate_id == call.call_id]
        for call in (bad, good)
    }
    assert numbers == {bad.call_id: [1, 2], good.call_id: list(range(1, 8))}
    assert len(store.outbox.unpublished_of(steps.ref(bad), limit=9)) == 2
    assert [event.sequence for event in store.calls.list_events(make.TENANT, bad.call_id, after=0, limit=9)] == [1, 2]
    reports = [record for record in caplog.records if getattr(record, "action", "") == "outbox.unreadable"]
    assert reports
    assert "confidential" not in caplog.text


def test_a_text_that_is_no_utf_8_is_damage_of_its_own_document(store: MongoDbStore, single: Namespace) -> None:
    """MongoDB stores what it is given. The stand-in does not, so that the answer is damaged on its way instead."""
    (timer,) = create(store, *make_timers(single, 1, correlation_id="caf+"))
    found = store.database[TIMERS].find_one(key_of(timer))
    assert found is not None
    raw = bson.encode(found, codec_options=READ_AS).replace(b"caf+", b"caf\xe9")

    document = bson.decode(raw, codec_options=READ_AS)

    with pytest.raises(UnreadableError):
        decode(document)
    shown = decode_or_salvage(document)
    assert shown.timer_id == timer.timer_id
    assert shown.content.correlation_id == "caf\N{REPLACEMENT CHARACTER}"
    assert is_whole(shown)
