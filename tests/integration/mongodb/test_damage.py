"""Documents whose keys are damaged: they hide nothing of the others and break no poll."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import bson
import pytest
from bson.datetime_ms import DatetimeMS

from duetime.domain.errors import CallUnreadable
from duetime.domain.namespaces import Namespace
from duetime.domain.service_calls import ServiceCall
from duetime.domain.timers import Rearm, Timer, TimerState
from duetime.domain.times import to_milliseconds
from duetime.stores.backends.mongodb.database import READ_AS
from duetime.stores.backends.mongodb.documents import to_row
from duetime.stores.core.store import Store
from duetime.stores.core.timer_codec import decode, decode_or_salvage
from duetime.stores.decoding import UnreadableError, is_whole
from duetime.stores.entities import SERVICE_CALL, TIMER
from duetime.stores.port.calls import CallFilter
from duetime.stores.port.pages import Page
from duetime.stores.port.timers import ChangeStatus, TimerFilter, TimerRef
from duetime.testing.contract import call_builders as make
from duetime.testing.contract import call_steps as steps
from duetime.testing.contract.builders import RETENTION, make_timers, seconds
from duetime.testing.contract.steps import create, read_all
from tests.support.clock import NOW
from tests.support.mongodb import database_of, key_of_timer


@pytest.fixture
def single(store: Store) -> Namespace:
    return store.catalogue.create_namespace("single", num_shards=1, dedicated=False, now=NOW)[0]


def polled(store: Store, *, limit: int) -> tuple[list[str], int]:
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
def test_timers_without_their_uuid(store: Store, single: Namespace, uuid: Any, limit: int) -> None:
    timers = create(store, *make_timers(single, 5))
    change = {"$unset": {"timer_uuid": ""}} if uuid is None else {"$set": {"timer_uuid": uuid}}
    database_of(store)["timers"].update_one(key_of_timer(timers[2]), change)

    found, unreadable = polled(store, limit=limit)

    assert sorted(found) == [timers[index].timer_id for index in (0, 1, 3, 4)]
    assert unreadable == 1
    (row,) = (row for each in [store.timers.due(0, until=NOW, limit=100)] for row in each.unreadable)
    store.timers.quarantine([row], now=NOW, expires_at=NOW + RETENTION)
    assert polled(store, limit=limit) == (found, 0)


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_timers_whose_uuid_sorts_behind_the_others(store: Store, single: Namespace, limit: int) -> None:
    timers = create(store, *make_timers(single, 5))
    change = {"$set": {"timer_uuid": NOW}}
    database_of(store)["timers"].update_one(key_of_timer(timers[2]), change)

    found, unreadable = polled(store, limit=limit)

    assert sorted(found) == [timers[index].timer_id for index in (0, 1, 3, 4)]
    assert unreadable == (limit >= len(timers)), "it is behind all others of its instant"


@pytest.mark.parametrize("is_choosy", [False, True])
@pytest.mark.parametrize("damage", [{"timer_id": 7}, {"timer_namespace": 7}, {"timer_id": 7, "timer_revision": "x"}])
def test_timers_whose_key_is_damaged_are_set_aside(
    store: Store, single: Namespace, damage: dict[str, Any], is_choosy: bool
) -> None:
    timers = create(store, *make_timers(single, 4))
    database_of(store)["timers"].update_one(key_of_timer(timers[1]), {"$set": damage})
    is_wanted = (lambda *_: True) if is_choosy else None

    page = store.timers.due(0, until=NOW, limit=9, is_wanted=is_wanted)
    store.timers.quarantine(page.unreadable, now=NOW, expires_at=NOW + RETENTION)

    assert {timer.timer_id for timer in page.timers} == {timers[at].timer_id for at in (0, 2, 3)}
    assert len(page.unreadable) == 1
    assert store.timers.due(0, until=NOW, limit=9, is_wanted=is_wanted) == replace(page, unreadable=())
    for wanted in (TimerFilter(), TimerFilter(state=TimerState.SCHEDULED)):
        listed = store.timers.list(single, wanted, cursor=None, limit=9, now=NOW).items
        assert {timer.timer_id for timer in page.timers} <= {timer.timer_id for timer in listed}


VALUES = [None, 7.5, {"a": 1}, [1], "x"]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_of_another_type_harms_its_timer_alone(store: Store, single: Namespace, value: Any) -> None:
    """A timer for each field, in which it is damaged, and two sound ones."""
    timers = create(store, *make_timers(single, len(TIMER.names) + 2, correlation_id="c", payload_json="1"))
    for field, timer in zip(TIMER.names, timers, strict=False):
        database_of(store)["timers"].update_one(key_of_timer(timer), {"$set": {field: value}})
    sound = {timer.timer_id for timer in timers[-2:]}

    page = store.timers.due(0, until=NOW, limit=99)
    chosen = store.timers.due(0, until=NOW, limit=99, is_wanted=lambda *_: True)
    store.timers.quarantine(page.unreadable, now=NOW, expires_at=NOW + RETENTION)

    assert sound <= {timer.timer_id for timer in page.timers}
    assert sound <= {timer.timer_id for timer in chosen.timers}
    assert {row.key for row in chosen.unreadable} == {row.key for row in page.unreadable}
    assert store.timers.due(0, until=NOW, limit=99).unreadable == ()
    for wanted in (TimerFilter(), TimerFilter(tag="a"), TimerFilter(state=TimerState.SCHEDULED)):

        def listed(cursor: str | None, wanted: TimerFilter = wanted) -> Page[Timer]:
            return store.timers.list(single, wanted, cursor=cursor, limit=3, now=NOW)

        read_all(listed)
    read_all(lambda at: store.timers.find_by_correlation(single, "c", cursor=at, limit=3, now=NOW))
    refs = [TimerRef(timer.timer_id) for timer in timers]
    store.timers.rearm(single, refs, rearm=Rearm.REDRIVE, now=NOW)
    deleted = store.timers.delete(single, refs, now=NOW)
    assert [each.status for each in deleted[-2:]] == [ChangeStatus.APPLIED] * 2
    store.timers.prune(now=NOW + 2 * RETENTION, limit=99)


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_of_another_type_harms_its_call_alone(store: Store, value: Any) -> None:
    names = SERVICE_CALL.names
    submitted = [make.submitted(tags=("a",)) for _ in (*names, "sound")]
    begun = [make.begun(each.after) for each in submitted]
    concluded = [make.concluded(each.after, each.executions[0]) for each in begun]
    for transitions in (submitted, begun, concluded):
        steps.applied(store.calls, *transitions)
    calls = [each.after for each in concluded]
    for field, call in zip(names, calls, strict=False):
        found_by = {"tenant_id": call.tenant_id, "service_call_id": call.call_id}
        database_of(store)["service_calls"].update_one(found_by, {"$set": {field: value}})
    sound = calls[-1]
    outbox = database_of(store)["outbox"]

    for wanted in (CallFilter(), CallFilter(tags=("a",)), CallFilter(name_prefix="r")):

        def page(cursor: str | None, wanted: CallFilter = wanted) -> Page[ServiceCall]:
            return store.calls.list(make.TENANT, wanted, cursor=cursor, limit=3, now=NOW)

        listed = read_all(page)
        assert sound.call_id in {call.call_id for call in listed}
    for call in calls:
        with suppress(CallUnreadable):
            steps.got(store.calls, call)
    store.outbox.mark_published(store.outbox.unpublished(limit=999), now=NOW)
    for field, call in zip(("aggregate_id", "tenant_id"), calls, strict=False):
        outbox.update_one({"aggregate_id": call.call_id, "event_sequence": 1}, {"$set": {field: value}})
    assert sound.expires_at is not None
    store.calls.prune(now=sound.expires_at, events_published_before=sound.expires_at, limit=999)
    assert steps.got(store.calls, sound) is None
    events = outbox.count_documents({"aggregate_id": sound.call_id})
    assert events == 0


@pytest.mark.parametrize("value", [None, 7.5, {"a": 1}, "x"], ids=repr)
def test_an_event_of_another_type_harms_its_call_alone(store: Store, value: Any) -> None:
    bad = steps.submit(store.calls)
    good = steps.submit(store.calls)
    outbox = database_of(store)["outbox"]
    for sequence, field in enumerate(("aggregate_id", "event_sequence", "published_at"), start=1):
        found_by = {"aggregate_id": bad.call_id, "event_sequence": sequence}
        outbox.update_one(found_by, {"$set": {field: value}})

    found = [each for each in store.outbox.unpublished(limit=100) if each.event.aggregate_id == good.call_id]
    store.outbox.mark_published(found, now=NOW)

    assert [each.event.sequence for each in found] == list(range(1, good.event_count + 1))
    left = store.outbox.unpublished(limit=100)
    assert good.call_id not in {each.event.aggregate_id for each in left}
    later = NOW + seconds(9)
    assert store.calls.prune(now=later, events_published_before=later, limit=99) == good.event_count


@pytest.mark.parametrize("at", ["2026-12-20", 7, DatetimeMS(to_milliseconds(NOW) - 2**45)], ids=repr)
def test_timers_due_at_no_instant(store: Store, single: Namespace, at: Any) -> None:
    timers = create(
        store, *make_timers(single, 3), *make_timers(single, 1, prefix="later", execute_at=NOW + seconds(5))
    )
    database_of(store)["timers"].update_one(key_of_timer(timers[1]), {"$set": {"timer_execute_at": at}})

    assert polled(store, limit=2)[0] == [timers[0].timer_id, timers[2].timer_id]
    assert store.timers.due(0, until=NOW, limit=5).next_attempt_at == NOW + seconds(5)
    assert store.timers.get(single, timers[1].timer_id, now=NOW) is not None


def test_a_text_that_is_no_utf_8_is_damage_of_its_own_document(store: Store, single: Namespace) -> None:
    """MongoDB stores what it is given. The stand-in does not, so that the answer is damaged on its way instead."""
    (timer,) = create(store, *make_timers(single, 1, correlation_id="caf+"))
    found = database_of(store)["timers"].find_one(key_of_timer(timer))
    assert found is not None
    raw = bson.encode(found, codec_options=READ_AS).replace(b"caf+", b"caf\xe9")

    row = to_row(TIMER, bson.decode(raw, codec_options=READ_AS), TIMER.names)

    with pytest.raises(UnreadableError):
        decode(row)
    shown = decode_or_salvage(row)
    assert shown.timer_id == timer.timer_id
    assert shown.content.correlation_id == "caf\N{REPLACEMENT CHARACTER}"
    assert is_whole(shown)
