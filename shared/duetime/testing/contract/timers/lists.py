"""list_timers and find_by_correlation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from duetime.domain.namespaces import Namespace
from duetime.domain.timers import Failure, FailureReason, Timer, TimerState
from duetime.stores.core.store import Store
from duetime.stores.port.pages import Page
from duetime.stores.port.timers import PutMode, TimerFilter, TimerRef
from duetime.testing.contract.builders import (
    NOW,
    RETENTION,
    failed,
    fired,
    make_timer,
    make_timers,
    parked,
    rescheduled,
    retried,
    seconds,
)
from duetime.testing.contract.steps import claim, create, read_all, record, record_fired, stored

EVERYTHING = TimerFilter()


def listed(
    store: Store, namespace: Namespace, timer_filter: TimerFilter = EVERYTHING, *, limit: int = 3
) -> list[Timer]:
    """Return all pages of a list, each no longer than its limit."""

    def read_page(cursor: str | None) -> Page[Timer]:
        page = store.timers.list(namespace, timer_filter, cursor=cursor, limit=limit, now=NOW)
        assert len(page.items) <= limit
        return page

    return read_all(read_page)


def ids(timers: Iterable[Timer]) -> list[str]:
    return sorted(timer.timer_id for timer in timers)


@pytest.mark.parametrize("limit", [1, 4, 23, 100])
def test_every_timer_is_listed_once_by_shard_then_id(store: Store, orders: Namespace, limit: int) -> None:
    timers = create(store, *make_timers(orders, 23), *(make_timer(orders, timer_id) for timer_id in "aZé😀#"))

    found = listed(store, orders, limit=limit)

    assert found == sorted(timers, key=lambda timer: (timer.shard_id, timer.timer_id))


def test_an_empty_namespace_has_an_empty_list(store: Store, orders: Namespace, single: Namespace) -> None:
    create(store, *make_timers(single, 3))

    assert listed(store, orders) == []


def test_a_list_holds_its_own_namespace_only(store: Store, orders: Namespace) -> None:
    names = ["order", "orders-2", "orders.a"]
    others = [store.catalogue.create_namespace(name, num_shards=4, dedicated=False, now=NOW)[0] for name in names]
    mine = create(store, *make_timers(orders, 5))
    for other in others:
        create(store, *make_timers(other, 5))

    assert ids(listed(store, orders)) == ids(mine)


def test_a_dedicated_namespace_is_listed(store: Store) -> None:
    vip, _ = store.catalogue.create_namespace("vip", num_shards=3, dedicated=True, now=NOW)
    timers = create(store, *make_timers(vip, 9))

    assert ids(listed(store, vip)) == ids(timers)


def test_writes_between_pages_do_not_disturb_the_rest(store: Store, single: Namespace) -> None:
    create(store, *make_timers(single, 10))
    page = store.timers.list(single, EVERYTHING, cursor=None, limit=4, now=NOW)
    create(store, make_timer(single, "a"), make_timer(single, "t0009-later"))
    store.timers.delete(single, [TimerRef("t0000"), TimerRef("t0003"), TimerRef("t0007")], now=NOW)

    rest = read_all(
        lambda cursor: store.timers.list(single, EVERYTHING, cursor=cursor or page.next_cursor, limit=4, now=NOW)
    )

    seen = [timer.timer_id for timer in [*page.items, *rest] if timer.timer_id.startswith("t000")]
    assert len(seen) == len(set(seen))
    assert set(seen) >= {f"t{index:04}" for index in range(10) if index != 7}
    assert "t0007" not in seen


def test_a_timer_that_moves_is_still_listed_once(store: Store, single: Namespace) -> None:
    create(store, *make_timers(single, 6))
    page = store.timers.list(single, EVERYTHING, cursor=None, limit=3, now=NOW)
    record_fired(store, single)

    rest = read_all(
        lambda cursor: store.timers.list(single, EVERYTHING, cursor=cursor or page.next_cursor, limit=3, now=NOW)
    )

    assert [timer.timer_id for timer in [*page.items, *rest]] == [f"t{index:04}" for index in range(6)]


@pytest.fixture
def in_every_state(store: Store, single: Namespace) -> None:
    """One timer per state, named after it, and one that waits for a retry."""
    scheduled, parked_one, fired_one, failed_one, waiting = create(
        store, *(make_timer(single, name) for name in ("scheduled", "firing", "fired", "failed", "waiting"))
    )
    assert scheduled.next_attempt_at == NOW
    outcomes = [
        parked(parked_one, until=NOW + seconds(30)),
        fired(fired_one),
        failed(failed_one),
        retried(waiting, next_attempt_at=NOW + seconds(5)),
    ]
    record(store, outcomes, claim(store))


@pytest.mark.usefixtures("in_every_state")
@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (TimerState.SCHEDULED, ["scheduled", "waiting"]),
        (TimerState.FIRING, ["firing"]),
        (TimerState.FIRED, ["fired"]),
        (TimerState.FAILED, ["failed"]),
        (None, ["failed", "fired", "firing", "scheduled", "waiting"]),
    ],
)
def test_filter_by_state(store: Store, single: Namespace, state: TimerState | None, expected: list[str]) -> None:
    assert ids(listed(store, single, TimerFilter(state=state), limit=2)) == expected


@pytest.mark.parametrize(
    ("tag", "expected"),
    [
        ("red", ["both", "red"]),
        ("blue", ["blue", "both"]),
        ("re", []),
        ("RED", []),
        ("100%", ["odd"]),
        ("100_", []),
        ('a"b', ["odd"]),
        ("ü😀", ["odd"]),
        (",", []),
        ("", []),
        ("\\", ["backslash"]),
    ],
)
def test_filter_by_tag(store: Store, orders: Namespace, tag: str, expected: list[str]) -> None:
    create(
        store,
        make_timer(orders, "red", tags=("red",)),
        make_timer(orders, "blue", tags=("blue",)),
        make_timer(orders, "both", tags=("blue", "red")),
        make_timer(orders, "odd", tags=("100%", 'a"b', "ü😀")),
        make_timer(orders, "backslash", tags=("\\",)),
        make_timer(orders, "none"),
    )

    assert ids(listed(store, orders, TimerFilter(tag=tag), limit=1)) == expected


def test_filter_by_due_time_is_from_inclusive_to_exclusive(store: Store, orders: Namespace) -> None:
    create(store, *(make_timer(orders, f"s{offset}", execute_at=NOW + seconds(offset)) for offset in range(10)))
    three, six = NOW + seconds(3), NOW + seconds(6)

    assert ids(listed(store, orders, TimerFilter(due_from=three, due_to=six))) == ["s3", "s4", "s5"]
    assert ids(listed(store, orders, TimerFilter(due_from=six))) == ["s6", "s7", "s8", "s9"]
    assert ids(listed(store, orders, TimerFilter(due_to=three))) == ["s0", "s1", "s2"]
    assert listed(store, orders, TimerFilter(due_from=six, due_to=three)) == []


@pytest.mark.usefixtures("in_every_state")
def test_filter_by_due_time_is_about_the_time_asked_for(store: Store, single: Namespace) -> None:
    at_now = TimerFilter(due_from=NOW, due_to=NOW + seconds(0.001))

    assert ids(listed(store, single, at_now)) == ["failed", "fired", "firing", "scheduled", "waiting"]
    assert listed(store, single, TimerFilter(due_from=NOW + seconds(0.001))) == []


def test_filter_by_the_due_time_that_a_receiver_chose(store: Store, single: Namespace) -> None:
    (timer,) = create(store, make_timer(single))
    record(store, [rescheduled(timer, execute_at=NOW + seconds(60))], claim(store))

    assert ids(listed(store, single, TimerFilter(due_from=NOW + seconds(60)))) == ["t1"]
    assert listed(store, single, TimerFilter(due_to=NOW + seconds(60))) == []


def test_filter_by_the_reason_of_the_last_failure(store: Store, single: Namespace) -> None:
    timers = create(store, *make_timers(single, 5))
    reasons = [FailureReason.TIMEOUT, FailureReason.NETWORK, FailureReason.TIMEOUT, None]
    outcomes = [
        fired(timer)
        if reason is None
        else replace(failed(timer), failure=Failure(reason, f'not "network", {{"reason": "{reason}"}}', NOW))
        for timer, reason in zip(timers, reasons, strict=False)
    ]
    retrying = replace(retried(timers[4], next_attempt_at=NOW + seconds(9)), failure=outcomes[1].failure)
    record(store, [*outcomes, retrying], claim(store))

    def found(reason: FailureReason, state: TimerState | None = None) -> list[str]:
        return ids(listed(store, single, TimerFilter(failure_reason=reason, state=state)))

    assert found(FailureReason.TIMEOUT) == ["t0000", "t0002"]
    assert found(FailureReason.NETWORK) == ["t0001", "t0004"]
    assert found(FailureReason.NETWORK, TimerState.FAILED) == ["t0001"]
    assert found(FailureReason.HTTP_STATUS) == []


def test_filter_by_the_time_of_the_end_is_from_inclusive_to_exclusive(store: Store, single: Namespace) -> None:
    timers = create(store, *make_timers(single, 4))
    lease = claim(store)
    for number, timer in enumerate(timers):
        record(store, [failed(timer)], lease, now=NOW + seconds(number))

    between = TimerFilter(updated_from=NOW + seconds(1), updated_to=NOW + seconds(3))

    assert ids(listed(store, single, between)) == ["t0001", "t0002"]
    assert ids(listed(store, single, TimerFilter(updated_from=NOW + seconds(3)))) == ["t0003"]
    assert ids(listed(store, single, TimerFilter(updated_to=NOW + seconds(1)))) == ["t0000"]


def test_all_conditions_of_a_filter_must_hold(store: Store, orders: Namespace) -> None:
    create(
        store,
        make_timer(orders, "match", tags=("x",), execute_at=NOW + seconds(5)),
        make_timer(orders, "no-tag", execute_at=NOW + seconds(5)),
        make_timer(orders, "too-late", tags=("x",), execute_at=NOW + seconds(9)),
    )
    both = TimerFilter(state=TimerState.SCHEDULED, tag="x", due_from=NOW, due_to=NOW + seconds(9))

    assert ids(listed(store, orders, both)) == ["match"]


def test_a_rare_match_among_many_is_found(store: Store, orders: Namespace) -> None:
    timers = make_timers(orders, 1200)
    for start in range(0, len(timers), 400):
        create(store, *timers[start : start + 400])
    rare = create(store, *(make_timer(orders, f"zz{index}", tags=("rare",)) for index in range(3)))

    assert ids(listed(store, orders, TimerFilter(tag="rare"), limit=2)) == ids(rare)


def test_expired_timers_are_not_listed(store: Store, single: Namespace) -> None:
    create(store, *make_timers(single, 3), make_timer(single, "later", execute_at=NOW + RETENTION))
    record_fired(store, single)
    expiry = NOW + RETENTION

    def listed_at(instant_offset: float) -> list[str]:
        now = expiry + seconds(instant_offset)
        return ids(read_all(lambda cursor: store.timers.list(single, EVERYTHING, cursor=cursor, limit=2, now=now)))

    assert len(listed_at(-0.001)) == 4
    assert listed_at(0) == ["later"]


def correlated(store: Store, namespace: Namespace, correlation_id: str) -> list[str]:
    return ids(
        read_all(
            lambda cursor: store.timers.find_by_correlation(
                namespace, correlation_id, cursor=cursor, limit=2, now=NOW
            )
        )
    )


def test_timers_are_found_by_correlation_each_once(store: Store, orders: Namespace) -> None:
    create(
        store,
        *(make_timer(orders, f"a{index}", correlation_id="trace-1") for index in range(7)),
        make_timer(orders, "b", correlation_id="trace-2"),
        make_timer(orders, "c", correlation_id="trace"),
        make_timer(orders, "none"),
    )

    assert correlated(store, orders, "trace-1") == [f"a{index}" for index in range(7)]
    assert correlated(store, orders, "trace-2") == ["b"]
    assert correlated(store, orders, "TRACE-2") == []


def test_found_timers_are_whole(store: Store, orders: Namespace) -> None:
    (timer,) = create(store, make_timer(orders, correlation_id="ü 😀#1", tags=("x",), payload_json="[1]"))

    page = store.timers.find_by_correlation(orders, "ü 😀#1", cursor=None, limit=10, now=NOW)

    assert page.items == [timer]


def test_correlation_is_scoped_by_namespace(store: Store, orders: Namespace, single: Namespace) -> None:
    create(store, make_timer(orders, "mine", correlation_id="c"), make_timer(single, "theirs", correlation_id="c"))

    assert correlated(store, orders, "c") == ["mine"]
    assert correlated(store, single, "c") == ["theirs"]


def test_correlation_follows_changes_and_ends(store: Store, single: Namespace) -> None:
    create(store, make_timer(single, correlation_id="old"))
    store.timers.put([make_timer(single, correlation_id="new")], mode=PutMode.REPLACE, now=NOW)
    assert correlated(store, single, "old") == []
    assert correlated(store, single, "new") == ["t1"]

    record_fired(store, single)

    assert correlated(store, single, "new") == ["t1"]
    assert store.timers.find_by_correlation(single, "new", cursor=None, limit=9, now=NOW).items == [
        stored(store, single)
    ]
    expired = store.timers.find_by_correlation(single, "new", cursor=None, limit=9, now=NOW + RETENTION)
    assert expired.items == []


def test_texts_that_differ_by_blanks_at_the_end_differ(store: Store, single: Namespace) -> None:
    create(
        store,
        make_timer(single, "a", correlation_id="c"),
        make_timer(single, "a ", correlation_id="c "),
        make_timer(single, "a  ", correlation_id="c "),
    )

    assert ids(listed(store, single)) == ["a", "a ", "a  "]
    assert correlated(store, single, "c") == ["a"]
    assert correlated(store, single, "c ") == ["a ", "a  "]
    store.timers.delete(single, [TimerRef("a ")], now=NOW)
    assert ids(listed(store, single)) == ["a", "a  "]
    assert store.timers.get(single, "a ", now=NOW) is None
