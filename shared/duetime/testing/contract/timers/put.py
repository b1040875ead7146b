"""put_timers and get_timer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from duetime.domain.namespaces import Namespace
from duetime.domain.outcomes import Outcome
from duetime.domain.timers import Failure, FailureReason, Timer, TimerChange, TimerState, replaced
from duetime.stores.core.store import Store
from duetime.stores.port.timers import PutMode, PutResult, PutStatus
from duetime.testing.contract.builders import (
    NOW,
    RETENTION,
    failed,
    fired,
    make_namespace,
    make_timer,
    make_timers,
    parked,
    rescheduled,
    retried,
    seconds,
)
from duetime.testing.contract.fixtures import AtOnce
from duetime.testing.contract.steps import claim, create, due, record, record_fired

LATER = NOW + seconds(30)


def put(store: Store, timer: Timer, mode: PutMode, if_revision: int | None = None) -> PutResult:
    return store.timers.put([timer], mode=mode, now=timer.created_at, if_revision=if_revision)[0]


def test_a_created_timer_is_stored_as_given(store: Store, orders: Namespace) -> None:
    timer = make_timer(
        orders,
        execute_at=NOW + seconds(3600.123),
        payload_json='{"a": 1}',
        headers_json='{"X-Token": "s"}',
        retry_policy_json='{"maxAttempts": 3}',
        callback_timeout_seconds=7,
        correlation_id="c-1",
        tags=("red", "blue"),
        expire_after_ms=90_500,
        timing_json='{"local_time":"2026-12-20T17:30:00","time_zone":"Europe/Berlin"}',
    )

    assert put(store, timer, PutMode.CREATE) == PutResult(PutStatus.CREATED, timer)
    assert store.timers.get(orders, timer.timer_id, now=NOW) == timer


@pytest.mark.parametrize("mode", PutMode)
def test_optional_values_may_be_absent(store: Store, orders: Namespace, mode: PutMode) -> None:
    timer = make_timer(orders)

    assert put(store, timer, mode) == PutResult(PutStatus.CREATED, timer)
    assert store.timers.get(orders, timer.timer_id, now=NOW) == timer


def test_an_unknown_timer_is_none(store: Store, orders: Namespace) -> None:
    assert store.timers.get(orders, "nobody", now=NOW) is None


def test_creating_the_same_content_again_changes_nothing(store: Store, orders: Namespace) -> None:
    timer = make_timer(orders)
    put(store, timer, PutMode.CREATE)

    assert put(store, make_timer(orders, now=LATER), PutMode.CREATE) == PutResult(PutStatus.UNCHANGED, timer)
    assert put(store, timer, PutMode.CREATE) == PutResult(PutStatus.UNCHANGED, timer)
    assert store.timers.get(orders, timer.timer_id, now=NOW) == timer


def test_creating_other_content_is_a_conflict(store: Store, orders: Namespace) -> None:
    timer = make_timer(orders, payload_json="1")
    put(store, timer, PutMode.CREATE)

    assert put(store, make_timer(orders, payload_json="2"), PutMode.CREATE) == PutResult(PutStatus.CONFLICT, timer)
    assert store.timers.get(orders, timer.timer_id, now=NOW) == timer


def test_creating_a_finished_timer_again_changes_nothing(store: Store, single: Namespace) -> None:
    timer = make_timer(single)
    put(store, timer, PutMode.CREATE)
    record_fired(store, single)
    stored = store.timers.get(single, timer.timer_id, now=NOW)
    assert stored is not None

    assert put(store, make_timer(single), PutMode.CREATE) == PutResult(PutStatus.UNCHANGED, stored)
    assert put(store, make_timer(single, payload_json="2"), PutMode.CREATE) == PutResult(PutStatus.CONFLICT, stored)


def test_a_replacement_keeps_age_and_counts_the_revision_on(store: Store, orders: Namespace) -> None:
    old = make_timer(orders, correlation_id="old", tags=("old",), payload_json="1")
    put(store, old, PutMode.CREATE)
    new = make_timer(orders, now=LATER, execute_at=NOW + seconds(90))

    assert put(store, new, PutMode.REPLACE) == PutResult(PutStatus.REPLACED, replaced(old, new))
    stored = store.timers.get(orders, old.timer_id, now=LATER)
    assert stored == replaced(old, new)
    assert stored.revision == 2
    assert stored.created_at == NOW
    assert stored.updated_at == LATER


def test_a_replacement_moves_the_due_time(store: Store, single: Namespace) -> None:
    put(store, make_timer(single, execute_at=NOW), PutMode.CREATE)
    put(store, make_timer(single, execute_at=LATER), PutMode.REPLACE)

    assert due(store, single, until=LATER - seconds(0.001)) == []
    assert [timer.revision for timer in due(store, single, until=LATER)] == [2]


def test_a_replacement_starts_without_the_attempts_of_the_replaced(store: Store, single: Namespace) -> None:
    (timer,) = create(store, make_timer(single))
    record(store, [replace(retried(timer, next_attempt_at=LATER), attempt_log="[1]")], claim(store))

    result = put(store, make_timer(single, payload_json="2"), PutMode.REPLACE)

    assert result.timer is not None
    assert result.timer.attempt_log is None
    assert store.timers.get(single, "t1", now=NOW) == result.timer


def test_a_finished_timer_can_be_replaced(store: Store, single: Namespace) -> None:
    put(store, make_timer(single), PutMode.CREATE)
    record_fired(store, single)

    result = put(store, make_timer(single, now=LATER, execute_at=LATER), PutMode.REPLACE)

    assert result.status is PutStatus.REPLACED
    assert result.timer is not None
    assert (result.timer.state, result.timer.revision) == (TimerState.SCHEDULED, 3)
    assert result.timer.fired_at is None
    assert result.timer.expires_at is None
    assert due(store, single, until=LATER) == [result.timer]


BECAME: dict[str, Callable[[Timer], Outcome | None]] = {
    "waits": lambda timer: None,
    "waits for a retry": lambda timer: retried(timer, next_attempt_at=LATER),
    "is parked": lambda timer: parked(timer, until=LATER),
    "has fired": fired,
    "was rescheduled by its receiver": lambda timer: rescheduled(timer, execute_at=LATER),
    "has failed": failed,
    "came too late": lambda timer: replace(failed(timer), failure=Failure(FailureReason.EXPIRED, "too late", NOW)),
}


@pytest.mark.parametrize("became", BECAME)
@pytest.mark.parametrize("has_revision", [False, True])
def test_putting_the_same_content_again_changes_nothing(
    store: Store, single: Namespace, became: str, has_revision: bool
) -> None:
    timer = make_timer(single, payload_json="[1]")
    assert put(store, timer, PutMode.REPLACE).status is PutStatus.CREATED
    outcome = BECAME[became](timer)
    if outcome is not None:
        record(store, [outcome], claim(store))
    stored = store.timers.get(single, timer.timer_id, now=NOW)
    assert stored is not None

    again = make_timer(single, payload_json="[1]", now=LATER)
    (result,) = store.timers.put(
        [again], mode=PutMode.REPLACE, now=LATER, if_revision=stored.revision if has_revision else None
    )

    assert result == PutResult(PutStatus.UNCHANGED, stored)
    assert store.timers.get(single, timer.timer_id, now=NOW) == stored


def test_the_revision_is_judged_before_the_content(store: Store, single: Namespace) -> None:
    timer = make_timer(single)
    put(store, timer, PutMode.REPLACE)

    assert put(store, make_timer(single), PutMode.REPLACE, if_revision=2) == PutResult(
        PutStatus.REVISION_MISMATCH, timer
    )


def test_the_same_content_replaces_what_was_changed_since(store: Store, single: Namespace) -> None:
    put(store, make_timer(single), PutMode.REPLACE)
    store.timers.update(single, "t1", TimerChange(tags=("changed",)), firing_id="other", now=NOW)

    result = put(store, make_timer(single), PutMode.REPLACE)

    assert result.status is PutStatus.REPLACED
    assert result.timer is not None
    assert (result.timer.content.tags, result.timer.revision) == ((), 3)


def test_a_batch_leaves_alone_what_it_repeats(store: Store, orders: Namespace) -> None:
    batch = [make_timer(orders, timer_id) for timer_id in ("same", "other")]
    store.timers.put(batch, mode=PutMode.REPLACE, now=NOW)
    again = [make_timer(orders, "same", now=LATER), make_timer(orders, "other", payload_json="2", now=LATER)]

    results = store.timers.put(again, mode=PutMode.REPLACE, now=LATER)

    assert results == [
        PutResult(PutStatus.UNCHANGED, batch[0]),
        PutResult(PutStatus.REPLACED, replaced(batch[1], again[1])),
    ]


def test_replace_with_the_stored_revision(store: Store, orders: Namespace) -> None:
    old = make_timer(orders)
    put(store, old, PutMode.CREATE)
    new = make_timer(orders, payload_json="2")

    result = put(store, new, PutMode.REPLACE, if_revision=1)

    assert result == PutResult(PutStatus.REPLACED, replaced(old, new))


def test_replace_with_another_revision_changes_nothing(store: Store, orders: Namespace) -> None:
    old = make_timer(orders)
    put(store, old, PutMode.CREATE)

    result = put(store, make_timer(orders, payload_json="2"), PutMode.REPLACE, if_revision=2)

    assert result == PutResult(PutStatus.REVISION_MISMATCH, old)
    assert store.timers.get(orders, old.timer_id, now=NOW) == old


def test_replace_with_a_revision_needs_a_timer(store: Store, orders: Namespace) -> None:
    result = put(store, make_timer(orders), PutMode.REPLACE, if_revision=1)

    assert result == PutResult(PutStatus.REVISION_MISMATCH, None)
    assert store.timers.get(orders, "t1", now=NOW) is None


def test_each_item_of_a_batch_has_its_own_result_in_order(store: Store, orders: Namespace) -> None:
    same, other = make_timer(orders, "same"), make_timer(orders, "other", payload_json="1")
    store.timers.put([same, other], mode=PutMode.CREATE, now=NOW)
    batch = [
        make_timer(orders, "new-1"),
        make_timer(orders, "other", payload_json="2"),
        make_timer(orders, "new-2"),
        make_timer(orders, "same"),
    ]

    results = store.timers.put(batch, mode=PutMode.CREATE, now=NOW)

    assert results == [
        PutResult(PutStatus.CREATED, batch[0]),
        PutResult(PutStatus.CONFLICT, other),
        PutResult(PutStatus.CREATED, batch[2]),
        PutResult(PutStatus.UNCHANGED, same),
    ]
    assert store.timers.get(orders, "new-2", now=NOW) == batch[2]


def test_a_batch_may_replace_and_create(store: Store, orders: Namespace) -> None:
    old = make_timer(orders, "old")
    store.timers.put([old], mode=PutMode.CREATE, now=NOW)
    batch = [make_timer(orders, "new"), make_timer(orders, "old", payload_json="2")]

    results = store.timers.put(batch, mode=PutMode.REPLACE, now=NOW)

    assert results == [
        PutResult(PutStatus.CREATED, batch[0]),
        PutResult(PutStatus.REPLACED, replaced(old, batch[1])),
    ]


def test_a_batch_may_span_namespaces(store: Store, orders: Namespace) -> None:
    other, _ = store.catalogue.create_namespace("invoices", num_shards=2, dedicated=True, now=NOW)
    batch = [make_timer(orders, "same-id"), make_timer(other, "same-id")]

    results = store.timers.put(batch, mode=PutMode.CREATE, now=NOW)

    assert [result.status for result in results] == [PutStatus.CREATED] * 2
    assert store.timers.get(orders, "same-id", now=NOW) == batch[0]
    assert store.timers.get(other, "same-id", now=NOW) == batch[1]


def test_five_hundred_timers_are_one_batch(store: Store, orders: Namespace) -> None:
    batch = make_timers(orders, 500)

    results = store.timers.put(batch, mode=PutMode.CREATE, now=NOW)

    assert results == [PutResult(PutStatus.CREATED, timer) for timer in batch]
    assert store.timers.get(orders, "t0499", now=NOW) == batch[499]


def test_an_empty_batch_has_no_results(store: Store) -> None:
    assert store.timers.put([], mode=PutMode.CREATE, now=NOW) == []


def test_the_same_id_in_another_namespace_is_another_timer(store: Store, orders: Namespace) -> None:
    other, _ = store.catalogue.create_namespace("invoices", num_shards=4, dedicated=False, now=NOW)
    mine, theirs = make_timer(orders, payload_json="1"), make_timer(other, payload_json="2")
    put(store, mine, PutMode.CREATE)

    assert store.timers.get(other, mine.timer_id, now=NOW) is None
    assert put(store, theirs, PutMode.CREATE) == PutResult(PutStatus.CREATED, theirs)
    assert store.timers.get(orders, mine.timer_id, now=NOW) == mine


def test_an_expired_timer_counts_as_absent(store: Store, single: Namespace) -> None:
    put(store, make_timer(single), PutMode.CREATE)
    record_fired(store, single)
    expiry = NOW + RETENTION
    before, at = expiry - seconds(0.001), expiry

    new = make_timer(single, now=before)
    assert store.timers.put([new], mode=PutMode.CREATE, now=before)[0].status is PutStatus.UNCHANGED
    assert store.timers.put([new], mode=PutMode.REPLACE, now=at, if_revision=2) == [
        PutResult(PutStatus.REVISION_MISMATCH, None)
    ]
    new = make_timer(single, now=at, payload_json="2")
    assert store.timers.put([new], mode=PutMode.CREATE, now=at) == [PutResult(PutStatus.CREATED, new)]
    assert store.timers.get(single, new.timer_id, now=at) == new


def test_replacing_an_expired_timer_creates_it(store: Store, single: Namespace) -> None:
    put(store, make_timer(single), PutMode.CREATE)
    record_fired(store, single)
    at = NOW + RETENTION
    new = make_timer(single, now=at)

    assert store.timers.put([new], mode=PutMode.REPLACE, now=at) == [PutResult(PutStatus.CREATED, new)]


@pytest.mark.parametrize(
    "timer_id",
    [
        "ü",
        "日本語",
        "😀🏳️‍🌈",
        "a#b#c",
        "#",
        "TIMER#orders#x",
        " leading and trailing ",
        "a b",
        "'\"\\%_*",
        "x" * 255,
        "é" * 255,
    ],
)
def test_ids_may_hold_anything_printable(store: Store, orders: Namespace, timer_id: str) -> None:
    timer = make_timer(orders, timer_id)

    put(store, timer, PutMode.CREATE)

    assert store.timers.get(orders, timer_id, now=NOW) == timer
    assert [
        t.timer_id for shard in orders.shard_ids() for t in store.timers.due(shard, until=NOW, limit=9).timers
    ] == [timer_id]


def test_ids_differ_by_case_and_by_normal_form(store: Store, orders: Namespace) -> None:
    batch = [make_timer(orders, timer_id) for timer_id in ("a", "A", "a ", "\u00e9", "e\u0301")]

    results = store.timers.put(batch, mode=PutMode.CREATE, now=NOW)

    assert [result.status for result in results] == [PutStatus.CREATED] * 5
    assert [store.timers.get(orders, timer.timer_id, now=NOW) for timer in batch] == batch


def test_ids_that_only_meet_across_the_separator_stay_apart(store: Store) -> None:
    one, two = make_namespace("a"), make_namespace("a-b")
    for namespace in (one, two):
        store.catalogue.create_namespace(namespace.name, num_shards=4, dedicated=False, now=NOW)
    batch = [make_timer(one, "b#c"), make_timer(two, "c"), make_timer(one, "b:c")]

    store.timers.put(batch, mode=PutMode.CREATE, now=NOW)

    assert store.timers.get(one, "b#c", now=NOW) == batch[0]
    assert store.timers.get(two, "c", now=NOW) == batch[1]
    assert store.timers.get(one, "b:c", now=NOW) == batch[2]


@pytest.mark.parametrize(
    "text",
    [
        "null",
        '""',
        "[]",
        '{"big": 123456789012345678901234567890, "exact": 1.10, "tiny": 1e-400}',
        '{ "spaces" :  [1 ,2],\n"escaped":"\\u00e9", "raw":"é😀", "nul":"\\u0000", "empty":"" }',
        '{"b": 1, "a": 2, "b": 3}',
    ],
)
def test_json_text_is_kept_to_the_character(store: Store, orders: Namespace, text: str) -> None:
    headers, policy = '{ "A" :\t"\\u00e9 é",\n"A":"2" }', '{"maxAttempts" : 3 ,"backoffMultiplier":1.10}'
    timer = make_timer(orders, payload_json=text, headers_json=headers, retry_policy_json=policy)

    put(store, timer, PutMode.CREATE)

    stored = store.timers.get(orders, timer.timer_id, now=NOW)
    assert stored is not None
    assert stored.content.payload_json == text
    assert stored.content.headers_json == headers
    assert stored.content.retry_policy_json == policy


def test_the_largest_payload_is_kept(store: Store, orders: Namespace) -> None:
    timer = make_timer(orders, payload_json='"' + "x" * (256 * 1024 - 2) + '"')

    put(store, timer, PutMode.CREATE)

    assert store.timers.get(orders, timer.timer_id, now=NOW) == timer


@pytest.mark.parametrize("year", [1970, 9999])
def test_due_times_reach_from_1970_to_9999(store: Store, single: Namespace, year: int) -> None:
    execute_at = NOW.replace(year=year, month=12, day=31, hour=23, minute=59, second=59, microsecond=999_000)
    timer = make_timer(single, execute_at=execute_at)

    put(store, timer, PutMode.CREATE)

    assert store.timers.get(single, timer.timer_id, now=NOW) == timer
    assert due(store, single, until=execute_at) == [timer]


def test_a_past_due_time_is_due_at_once(store: Store, single: Namespace, at_once: AtOnce) -> None:
    timer = make_timer(single, execute_at=NOW - seconds(3600))

    put(store, timer, PutMode.CREATE)

    assert due(store, single, until=NOW) == [timer]


def test_a_stored_timer_is_not_affected_by_the_one_that_was_given(store: Store, orders: Namespace) -> None:
    timer = make_timer(orders)
    put(store, timer, PutMode.CREATE)

    other = replace(timer, firing_id="other")
    put(store, other, PutMode.CREATE)

    stored = store.timers.get(orders, timer.timer_id, now=NOW)
    assert stored is not None
    assert stored.firing_id == timer.firing_id
