"""Rows that cannot be decoded: reported, never in the way of others, taken aside and visible."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from duetime.api.http.responses import encode
from duetime.api.timers.responses import timer_response
from duetime.domain.namespaces import Namespace
from duetime.domain.retry import DEFAULT_RETRY_POLICY
from duetime.domain.timers import FailureReason, Timer, TimerChange, TimerState
from duetime.stores.core.store import Store
from duetime.stores.port.timers import ChangeStatus, PutMode, PutStatus, TimerFilter, TimerRef, UnreadableRow
from duetime.testing.contract.builders import NOW, RETENTION, make_timer, make_timers, seconds
from duetime.testing.contract.steps import create, due, read_all, stored
from duetime.testing.contract.subject import Subject

LATER = NOW + seconds(30)


@pytest.fixture
def bad_timer(subject: Subject, single: Namespace) -> Timer:
    """Store a timer whose row is corrupt."""
    (timer,) = create(subject.store, make_timer(single, "bad", tags=("x",), correlation_id="c"))
    subject.corrupt(timer)
    return timer


def unreadable(store: Store) -> tuple[UnreadableRow, ...]:
    return store.timers.due(0, until=NOW, limit=100).unreadable


def test_an_unreadable_row_is_reported_beside_the_others(store: Store, single: Namespace, bad_timer: Timer) -> None:
    good = create(store, *make_timers(single, 3))

    page = store.timers.due(0, until=NOW, limit=100)

    assert {timer.timer_id for timer in page.timers} == {timer.timer_id for timer in good}
    (row,) = page.unreadable
    assert (row.shard_id, row.namespace, row.timer_id) == (0, single.name, "bad")
    assert row.reason


def test_many_unreadable_rows_do_not_hide_a_later_timer(subject: Subject, single: Namespace) -> None:
    store = subject.store
    for timer in create(store, *make_timers(single, 5, execute_at=NOW - seconds(5))):
        subject.corrupt(timer)
    create(store, make_timer(single, "good"))

    found: list[str] = []
    reported = 0
    cursor: str | None = None
    for _ in range(10):
        page = store.timers.due(0, until=NOW, limit=2, cursor=cursor)
        found += [timer.timer_id for timer in page.timers]
        reported += len(page.unreadable)
        cursor = page.cursor
        if cursor is None:
            break

    assert found == ["good"]
    assert reported == 5


def test_a_quarantined_row_is_a_failed_timer(store: Store, single: Namespace, bad_timer: Timer) -> None:
    store.timers.quarantine(unreadable(store), now=LATER, expires_at=LATER + RETENTION)

    assert unreadable(store) == ()
    timer = stored(store, single, "bad", now=LATER)
    assert (timer.namespace, timer.timer_id, timer.shard_id) == ("single", "bad", 0)
    assert timer.state is TimerState.FAILED
    assert timer.next_attempt_at is None
    assert timer.failure is not None
    assert timer.failure.reason is FailureReason.UNREADABLE
    assert timer.failure.message


def test_a_quarantined_row_expires_as_other_failed_timers_do(
    subject: Subject, single: Namespace, bad_timer: Timer
) -> None:
    store, end = subject.store, LATER + RETENTION
    store.timers.quarantine(unreadable(store), now=LATER, expires_at=end)

    def read(now: datetime) -> list[Timer]:
        page = store.timers.list(single, TimerFilter(), cursor=None, limit=5, now=now)
        found = store.timers.get(single, "bad", now=now)
        assert page.items == ([] if found is None else [found])
        return page.items

    assert store.timers.prune(now=end - seconds(0.001), limit=5) == 0
    (timer,) = read(end - seconds(0.001))
    assert timer.expires_at == end
    assert read(end) == []
    (created,) = store.timers.put([make_timer(single, "bad")], mode=PutMode.CREATE, now=end)
    assert created.status is PutStatus.CREATED


def test_an_expired_quarantined_row_is_pruned(subject: Subject, single: Namespace, bad_timer: Timer) -> None:
    store = subject.store
    store.timers.quarantine(unreadable(store), now=NOW, expires_at=LATER)

    assert store.timers.prune(now=LATER, limit=5) == (0 if subject.expires_by_itself else 1)
    assert store.timers.get(single, "bad", now=LATER) is None


def test_a_quarantined_row_is_listed_among_the_failed(store: Store, single: Namespace, bad_timer: Timer) -> None:
    create(store, make_timer(single, "good"))
    store.timers.quarantine(unreadable(store), now=NOW, expires_at=NOW + RETENTION)

    def listed(timer_filter: TimerFilter) -> list[str]:
        timers = read_all(lambda cursor: store.timers.list(single, timer_filter, cursor=cursor, limit=5, now=NOW))
        return [timer.timer_id for timer in timers]

    assert listed(TimerFilter()) == ["bad", "good"]
    assert listed(TimerFilter(state=TimerState.FAILED)) == ["bad"]
    assert listed(TimerFilter(failure_reason=FailureReason.UNREADABLE)) == ["bad"]
    assert listed(TimerFilter(state=TimerState.SCHEDULED)) == ["good"]


def test_an_unreadable_row_spoils_no_read(store: Store, single: Namespace, bad_timer: Timer) -> None:
    create(store, make_timer(single, "good", correlation_id="c"))

    timer = stored(store, single, "bad")
    page = store.timers.list(single, TimerFilter(), cursor=None, limit=5, now=NOW)
    correlated = store.timers.find_by_correlation(single, "c", cursor=None, limit=5, now=NOW)

    assert timer.failure is not None
    assert timer.failure.reason is FailureReason.UNREADABLE
    assert [timer.timer_id for timer in page.items] == ["bad", "good"]
    assert "good" in {timer.timer_id for timer in correlated.items}


@pytest.mark.parametrize("is_quarantined", [False, True])
def test_an_unreadable_timer_can_be_replaced(
    store: Store, single: Namespace, bad_timer: Timer, is_quarantined: bool
) -> None:
    if is_quarantined:
        store.timers.quarantine(unreadable(store), now=NOW, expires_at=NOW + RETENTION)
    new = make_timer(single, "bad", execute_at=LATER)

    (result,) = store.timers.put([new], mode=PutMode.REPLACE, now=NOW)

    assert result.status is PutStatus.REPLACED
    assert result.timer is not None
    assert result.timer.revision > bad_timer.revision
    assert due(store, single, until=LATER) == [result.timer]


@pytest.mark.parametrize("is_quarantined", [False, True])
def test_an_unreadable_timer_can_be_deleted(
    store: Store, single: Namespace, bad_timer: Timer, is_quarantined: bool
) -> None:
    if is_quarantined:
        store.timers.quarantine(unreadable(store), now=NOW, expires_at=NOW + RETENTION)

    (result,) = store.timers.delete(single, [TimerRef("bad")], now=NOW)

    assert result.status is ChangeStatus.APPLIED
    assert store.timers.get(single, "bad", now=NOW) is None
    assert unreadable(store) == ()


@pytest.mark.parametrize("is_quarantined", [False, True])
def test_an_unreadable_timer_cannot_be_changed(
    store: Store, single: Namespace, bad_timer: Timer, is_quarantined: bool
) -> None:
    if is_quarantined:
        store.timers.quarantine(unreadable(store), now=NOW, expires_at=NOW + RETENTION)

    result = store.timers.update(single, "bad", TimerChange(tags=()), firing_id="f", now=NOW)

    assert result.status is ChangeStatus.FINISHED


def test_a_row_that_was_replaced_meanwhile_is_not_quarantined(
    store: Store, single: Namespace, bad_timer: Timer
) -> None:
    rows = unreadable(store)
    (result,) = store.timers.put([make_timer(single, "bad")], mode=PutMode.REPLACE, now=NOW)

    store.timers.quarantine(rows, now=NOW, expires_at=NOW + RETENTION)

    assert due(store, single) == [result.timer]


def test_a_row_that_was_deleted_meanwhile_is_not_resurrected(
    store: Store, single: Namespace, bad_timer: Timer
) -> None:
    rows = unreadable(store)
    store.timers.delete(single, [TimerRef("bad")], now=NOW)

    store.timers.quarantine(rows, now=NOW, expires_at=NOW + RETENTION)

    assert store.timers.get(single, "bad", now=NOW) is None


def test_quarantining_nothing_and_twice_does_no_harm(store: Store, single: Namespace, bad_timer: Timer) -> None:
    rows = unreadable(store)

    store.timers.quarantine([], now=NOW, expires_at=NOW + RETENTION)
    store.timers.quarantine(rows, now=NOW, expires_at=NOW + RETENTION)
    before = stored(store, single, "bad")
    store.timers.quarantine(rows, now=LATER, expires_at=LATER + RETENTION)

    assert stored(store, single, "bad") == before


# -- damage that the types of columns do not see ------------------------------------------------------------------

CONTENT_DAMAGE: dict[str, dict[str, Any]] = {
    "cut payload": {"payload_json": '{"order":'},
    "payload and more": {"payload_json": '{"order":1}}'},
    "payload of no JSON": {"payload_json": "NaN"},
    "headers that are no object": {"headers_json": '["x"]'},
    "headers of numbers": {"headers_json": '{"x":1}'},
    "cut headers": {"headers_json": '{"x"'},
    "policy that is no object": {"retry_policy_json": "[1]"},
    "policy of other types": {"retry_policy_json": '{"maxAttempts":"many"}'},
    "no time for the callback": {"callback_timeout_seconds": 0},
    "late before it is due": {"expire_after_ms": -1},
}
TIMER_DAMAGE: dict[str, dict[str, Any]] = {
    "attempts below none": {"attempts": -1},
    "firing id that splits a header": {"firing_id": "two words"},
}


@pytest.fixture
def damaged(store: Store, single: Namespace) -> list[str]:
    """Return the ids of timers whose columns hold what fits their types and nothing else."""
    timers = [
        *(make_timer(single, name, correlation_id="c", **fields) for name, fields in CONTENT_DAMAGE.items()),
        *(replace(make_timer(single, name, correlation_id="c"), **fields) for name, fields in TIMER_DAMAGE.items()),
    ]
    create(store, *timers)
    return sorted(timer.timer_id for timer in timers)


def test_a_damaged_timer_is_never_handed_out_to_be_fired(store: Store, single: Namespace, damaged: list[str]) -> None:
    (good,) = create(store, make_timer(single, "good", payload_json='{"n": 1e999, "big": ' + "9" * 5000 + "}"))

    page = store.timers.due(0, until=NOW, limit=100)

    assert page.timers == [good]
    assert sorted(row.timer_id or "" for row in page.unreadable) == damaged
    # What is wrong is told, and what is stored is not.
    assert all("damaged" in row.reason and "many" not in row.reason for row in page.unreadable)


@pytest.mark.parametrize("is_quarantined", [False, True])
def test_damaged_timers_are_shown_as_unreadable_in_json_that_can_be_read(
    store: Store, single: Namespace, damaged: list[str], is_quarantined: bool
) -> None:
    if is_quarantined:
        store.timers.quarantine(unreadable(store), now=NOW, expires_at=NOW + RETENTION)
        assert unreadable(store) == ()

    listed = read_all(lambda cursor: store.timers.list(single, TimerFilter(), cursor=cursor, limit=5, now=NOW))
    correlated = read_all(
        lambda cursor: store.timers.find_by_correlation(single, "c", cursor=cursor, limit=5, now=NOW)
    )
    one_by_one = [stored(store, single, timer_id) for timer_id in damaged]

    for timers in (listed, correlated, one_by_one):
        shown = [json.loads(encode(timer_response(timer, DEFAULT_RETRY_POLICY))) for timer in timers]
        assert sorted(each["id"] for each in shown) == damaged
        assert {(each["state"], each["failure"]["reason"]) for each in shown} == {("Failed", "Unreadable")}
        assert all(each["attempts"] >= 0 for each in shown)


def test_what_a_newer_version_says_in_a_policy_is_no_damage(store: Store, single: Namespace) -> None:
    (timer,) = create(store, make_timer(single, retry_policy_json='{"maxAttempts":3,"fallbackUrl":"http://x"}'))

    assert due(store, single) == [timer]


def test_a_payload_is_read_on_a_stack_that_is_fuller_than_the_one_it_was_accepted_on(
    store: Store, single: Namespace
) -> None:
    (timer,) = create(store, make_timer(single, payload_json="[" * 900 + "]" * 900))

    def deeper(levels: int) -> list[Timer]:
        return due(store, single) if levels == 0 else deeper(levels - 1)

    assert deeper(300) == [timer]
