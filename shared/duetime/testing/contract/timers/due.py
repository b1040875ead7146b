"""due_timers: what a poller reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

import pytest

from duetime.domain.namespaces import Namespace
from duetime.domain.timers import Timer, TimerChange
from duetime.stores.core.store import Store
from duetime.stores.port.pages import PAGE_BYTES, Page
from duetime.stores.port.timers import DuePage, IsWanted, PutMode, TimerFilter
from duetime.testing.contract.builders import (
    NOW,
    fired,
    ids_of_shard,
    make_timer,
    make_timers,
    parked,
    retried,
    seconds,
)
from duetime.testing.contract.fixtures import AtOnce
from duetime.testing.contract.steps import claim, create, record, record_fired, stored

TICK = seconds(0.001)
FAR = NOW + seconds(86_400)


def read(
    store: Store,
    *,
    until: datetime = NOW,
    limit: int = 100,
    cursor: str | None = None,
    since: datetime | None = None,
    known_next: datetime | None = None,
    is_wanted: IsWanted | None = None,
) -> DuePage:
    return store.timers.due(
        0, until=until, limit=limit, cursor=cursor, since=since, known_next=known_next, is_wanted=is_wanted
    )


def read_pages(
    store: Store,
    *,
    until: datetime = NOW,
    limit: int,
    since: datetime | None = None,
    is_wanted: IsWanted | None = None,
) -> list[DuePage]:
    pages = [read(store, until=until, limit=limit, since=since, is_wanted=is_wanted)]
    while pages[-1].cursor is not None:
        pages.append(read(store, until=until, limit=limit, cursor=pages[-1].cursor, is_wanted=is_wanted))
    return pages


def test_an_empty_shard_has_nothing_due_and_nothing_next(store: Store) -> None:
    assert read(store) == DuePage([])


def test_shards_with_nothing_due_are_told_together(store: Store, orders: Namespace) -> None:
    due, fired_shard, later, _ = orders.shard_ids()
    for shard_id, at in ((due, NOW), (fired_shard, NOW - TICK), (later, FAR), (later, NOW + TICK)):
        timer_id = ids_of_shard(orders, shard_id, 2)[at == FAR]
        create(store, make_timer(orders, timer_id, execute_at=at))
    fired_timer = store.timers.due(fired_shard, until=NOW, limit=1).timers[0]
    record(store, [fired(fired_timer)], claim(store, fired_shard))
    no_shards = range(1000, 1130)

    found = store.timers.next_due([*orders.shard_ids(), *no_shards], until=NOW)
    at_once = store.timers.next_due([due, later], until=FAR)

    empty = dict.fromkeys((fired_shard, orders.shard_ids()[3], *no_shards))
    assert found in ({}, {later: NOW + TICK, **empty})
    assert at_once == {}


def test_due_is_inclusive(store: Store, single: Namespace) -> None:
    (timer,) = create(store, make_timer(single, execute_at=NOW))

    assert read(store, until=NOW - TICK).timers == []
    assert read(store, until=NOW).timers == [timer]
    assert read(store, until=NOW + TICK).timers == [timer]


def test_due_timers_are_whole(store: Store, single: Namespace) -> None:
    (timer,) = create(
        store,
        make_timer(
            single,
            payload_json='{"n": 1.10}',
            headers_json='{"A": "b"}',
            retry_policy_json='{"maxAttempts": 2}',
            callback_timeout_seconds=5,
            correlation_id="c",
            tags=("x", "y"),
        ),
    )

    assert read(store).timers == [timer]


def test_due_timers_come_in_the_order_of_their_time(store: Store, single: Namespace) -> None:
    offsets = [5, 1, 9, 3, 7, 0.001, 0.002]
    timers = create(store, *(make_timer(single, f"o{o}", execute_at=NOW + seconds(o)) for o in offsets))

    expected = sorted(timers, key=lambda timer: timer.content.execute_at)

    assert read(store, until=FAR).timers == expected
    assert [timer for page in read_pages(store, until=FAR, limit=2) for timer in page.timers] == expected


def test_more_timers_at_one_instant_than_a_page_are_all_read_once(store: Store, single: Namespace) -> None:
    timers = make_timers(single, 315)
    create(store, *timers)

    pages = read_pages(store, limit=30)
    found = [timer for page in pages for timer in page.timers]

    assert all(len(page.timers) <= 30 for page in pages)
    assert len(found) == 315
    assert {timer.timer_id: timer for timer in found} == {timer.timer_id: timer for timer in timers}


def payload_bytes(timers: Sequence[Timer]) -> int:
    return sum(len(timer.content.payload_json or "") for timer in timers)


def pages_of(read_page: Callable[[str | None], Page[Timer]]) -> list[list[Timer]]:
    pages: list[list[Timer]] = []
    cursor: str | None = None
    for _ in range(100):
        page = read_page(cursor)
        pages.append(page.items)
        cursor = page.next_cursor
        if cursor is None:
            return pages
    raise AssertionError("the list has no end")


def test_a_page_holds_little_when_payloads_are_large(store: Store, single: Namespace) -> None:
    large, small = f'"{"x" * 262_000}"', '{"a":1}'
    timers = [
        make_timer(
            single, f"{n:03}", execute_at=at, payload_json=small if n % 4 else large, tags=("t",), correlation_id="c"
        )
        for at, first in ((NOW, 0), (NOW - seconds(1), 100))
        for n in range(first, first + 80)
    ]
    for timer in timers:
        create(store, timer)

    pages = read_pages(store, limit=500)
    lists = [
        pages_of(lambda cursor: store.timers.list(single, TimerFilter(), cursor=cursor, limit=500, now=NOW)),
        pages_of(lambda cursor: store.timers.list(single, TimerFilter(tag="t"), cursor=cursor, limit=500, now=NOW)),
        pages_of(lambda cursor: store.timers.find_by_correlation(single, "c", cursor=cursor, limit=500, now=NOW)),
    ]

    for found in ([page.timers for page in pages], *lists):
        assert max(map(payload_bytes, found)) <= PAGE_BYTES
        assert {timer.timer_id: timer for page in found for timer in page} == {each.timer_id: each for each in timers}
        assert sum(map(len, found)) == len(timers)
    assert [page.cursor is None for page in pages] == [False] * (len(pages) - 1) + [True]


def test_the_order_within_an_instant_is_stable(store: Store, single: Namespace) -> None:
    create(store, *make_timers(single, 30))

    assert read(store).timers == read(store).timers
    assert [timer for page in read_pages(store, limit=7) for timer in page.timers] == read(store).timers


def test_a_full_page_can_be_followed_from_its_cursor(store: Store, single: Namespace) -> None:
    create(store, *make_timers(single, 4))

    assert [len(page.timers) for page in read_pages(store, limit=3)] == [3, 1]
    assert sum(len(page.timers) for page in read_pages(store, limit=4)) == 4


def test_recording_between_pages_loses_nothing(store: Store, single: Namespace) -> None:
    create(store, *make_timers(single, 10))
    lease = claim(store)
    first = read(store, limit=4)
    record(store, [fired(timer) for timer in first.timers], lease)

    second = read(store, limit=100, cursor=first.cursor)

    assert len({timer.timer_id for timer in [*first.timers, *second.timers]}) == 10


def test_other_shards_are_not_read(store: Store, orders: Namespace) -> None:
    timers = create(store, *make_timers(orders, 40))

    for shard_id in orders.shard_ids():
        expected = {timer.timer_id for timer in timers if timer.shard_id == shard_id}
        page = store.timers.due(shard_id, until=NOW, limit=100)
        assert {timer.timer_id for timer in page.timers} == expected


def test_a_shard_is_read_over_all_its_namespaces(store: Store, single: Namespace) -> None:
    other, _ = store.catalogue.create_namespace("other", num_shards=1, dedicated=False, now=NOW)
    create(store, make_timer(single, "same"), make_timer(other, "same"))

    assert {timer.namespace for timer in read(store).timers} == {"single", "other"}


def test_finished_timers_are_not_due(store: Store, single: Namespace) -> None:
    create(store, *make_timers(single, 3))
    record_fired(store, single)

    assert read(store, until=FAR) == DuePage([])


def test_retries_and_parked_timers_are_due_at_their_next_attempt(store: Store, single: Namespace) -> None:
    waiting, slow = create(store, make_timer(single, "waiting"), make_timer(single, "slow"))
    outcomes = [retried(waiting, next_attempt_at=NOW + seconds(5)), parked(slow, until=NOW + seconds(8))]
    record(store, outcomes, claim(store))

    assert read(store).timers == []
    assert read(store, until=NOW + seconds(5)).timers == [stored(store, single, "waiting")]
    assert read(store, until=NOW + seconds(8)).timers == [
        stored(store, single, "waiting"),
        stored(store, single, "slow"),
    ]


def test_writes_are_seen_at_once(store: Store, single: Namespace, at_once: AtOnce) -> None:
    create(store, make_timer(single, execute_at=FAR))
    assert read(store).timers == []

    store.timers.update(single, "t1", TimerChange(execute_at=NOW), firing_id="f", now=NOW)
    assert [timer.revision for timer in read(store).timers] == [2]

    store.timers.put([make_timer(single, execute_at=FAR)], mode=PutMode.REPLACE, now=NOW)
    assert read(store).timers == []


def test_the_last_page_names_the_next_time(store: Store, single: Namespace) -> None:
    create(
        store,
        make_timer(single, "due"),
        make_timer(single, "next", execute_at=NOW + TICK),
        make_timer(single, "later", execute_at=NOW + seconds(60)),
    )

    assert read(store, until=NOW - TICK).next_attempt_at == NOW
    assert read(store, until=NOW).next_attempt_at == NOW + TICK
    assert read(store, until=NOW + TICK).next_attempt_at == NOW + seconds(60)
    assert read(store, until=NOW + seconds(60)).next_attempt_at is None


def test_only_the_last_page_names_the_next_time(store: Store, single: Namespace) -> None:
    create(store, *make_timers(single, 5), make_timer(single, "next", execute_at=FAR))

    *others, last = read_pages(store, limit=2)

    assert last.next_attempt_at == FAR
    assert others
    assert all(page.next_attempt_at is None for page in others)


@pytest.mark.parametrize(
    ("stored_next", "known_next", "expected"),
    [
        (NOW + seconds(60), NOW + seconds(60), NOW + seconds(60)),
        (NOW + seconds(30), NOW + seconds(60), NOW + seconds(30)),
        (NOW + seconds(90), NOW + seconds(60), NOW + seconds(60)),
        (None, NOW + seconds(60), NOW + seconds(60)),
        (None, None, None),
    ],
)
def test_a_known_next_time_bounds_the_answer(
    store: Store,
    single: Namespace,
    stored_next: datetime | None,
    known_next: datetime | None,
    expected: datetime | None,
) -> None:
    timers: list[Timer] = create(store, make_timer(single, "due"))
    if stored_next is not None:
        create(store, make_timer(single, "next", execute_at=stored_next))

    assert read(store, known_next=known_next) == DuePage(timers, next_attempt_at=expected)


def test_a_known_next_time_hides_nothing_that_is_due(store: Store, single: Namespace) -> None:
    timers = create(store, make_timer(single, "early"), make_timer(single, "late", execute_at=NOW + seconds(5)))

    page = read(store, until=NOW + seconds(5), known_next=NOW + seconds(5))

    assert page.timers == timers


@pytest.mark.parametrize("known_next", [None, NOW + seconds(60)])
def test_what_was_due_earlier_can_be_left_out(store: Store, single: Namespace, known_next: datetime | None) -> None:
    times = {"early": NOW - seconds(9), "at": NOW - TICK, "now": NOW, "next": NOW + seconds(30)}
    timers = create(store, *(make_timer(single, name, execute_at=at) for name, at in times.items()))

    def page(since: datetime) -> DuePage:
        return read(store, since=since, known_next=known_next)

    assert page(NOW - seconds(9)) == DuePage(timers[:3], next_attempt_at=times["next"])
    assert page(NOW - seconds(8.999)) == DuePage(timers[1:3], next_attempt_at=times["next"])
    assert page(NOW - TICK) == DuePage(timers[1:3], next_attempt_at=times["next"])
    assert page(NOW) == DuePage(timers[2:3], next_attempt_at=times["next"])


def test_leaving_out_what_was_due_earlier_is_paged(store: Store, single: Namespace) -> None:
    create(store, *make_timers(single, 3, prefix="early", execute_at=NOW - TICK))
    later = create(store, *make_timers(single, 7, prefix="later"))

    page = read(store, since=NOW, limit=3)
    pages = [page]
    while page.cursor is not None:
        page = read(store, since=NOW, limit=3, cursor=page.cursor)
        pages.append(page)

    found = [timer for each in pages for timer in each.timers]
    assert sorted(timer.timer_id for timer in found) == [timer.timer_id for timer in later]
