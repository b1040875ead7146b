"""``due`` with ``is_wanted`` and ``is_known``: what a poller leaves out, and what that must not hide."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import pytest

from duetime.domain.namespaces import Namespace
from duetime.domain.timers import Rearm, Timer
from duetime.stores.core.store import Store
from duetime.stores.port.pages import PAGE_BYTES
from duetime.stores.port.timers import LOOKED_AT_PER_TIMER, IsWanted, TimerRef
from duetime.testing.contract.builders import (
    NOW,
    failed,
    make_timer,
    make_timers,
    parked,
    seconds,
)
from duetime.testing.contract.steps import claim, create, record
from duetime.testing.contract.timers.due import FAR, payload_bytes, read, read_pages


def of_quiet(namespace: str, callback_url: str) -> bool:
    del callback_url
    return namespace == "quiet"


def create_noisy_and_quiet(store: Store, noisy: int, quiet_at: Sequence[datetime]) -> list[Timer]:
    """Two thirds of ``noisy`` are due at one instant, the others before. The timers of ``quiet``."""
    namespaces = [
        store.catalogue.create_namespace(name, num_shards=1, dedicated=False, now=NOW)[0]
        for name in ("noisy", "quiet")
    ]
    early = noisy // 3
    create(store, *(make_timer(namespaces[0], f"n{n}", execute_at=NOW - seconds(n + 1)) for n in range(early)))
    create(store, *make_timers(namespaces[0], noisy - early, prefix="same"))
    return create(store, *(make_timer(namespaces[1], f"q{n}", execute_at=at) for n, at in enumerate(quiet_at)))


@pytest.mark.parametrize("is_wanted", [None, lambda namespace, callback_url: bool(namespace and callback_url)])
def test_what_is_known_is_left_out_and_hides_nothing_else(
    store: Store, single: Namespace, is_wanted: IsWanted | None
) -> None:
    timers = create(store, *(make_timer(single, f"t{number}", execute_at=NOW) for number in range(9)))
    known = {timer.firing_id for timer in timers[:7]}

    def is_known(firing_id: str, attempts: int) -> bool:
        return firing_id in known and attempts == 0

    found: list[Timer] = []
    cursor: str | None = None
    for _ in range(5):
        page = store.timers.due(0, until=NOW, limit=2, cursor=cursor, is_wanted=is_wanted, is_known=is_known)
        found += page.timers
        cursor = page.cursor
        if cursor is None:
            break
    assert cursor is None
    assert sorted(timer.timer_id for timer in found) == ["t7", "t8"]
    page = store.timers.due(0, until=NOW, limit=9, is_known=is_known)
    assert (page.timers, page.known) == (found, 7)


def test_where_all_are_wanted_none_is_left_out(store: Store) -> None:
    create_noisy_and_quiet(store, 60, [NOW, NOW - seconds(7)])

    pages = read_pages(store, limit=7, is_wanted=lambda namespace, callback_url: bool(namespace and callback_url))

    assert [timer for page in pages for timer in page.timers] == read(store).timers
    assert all(len(page.timers) <= 7 for page in pages)
    assert all(page.next_attempt_at is None for page in pages)


@pytest.mark.parametrize("since", [None, NOW - seconds(9)])
def test_what_is_wanted_is_read_once_each_and_in_order_wherever_it_lies(store: Store, since: datetime | None) -> None:
    offsets = [0, 0, 0, 0, 0, 0, 1, 1, 3, 8, 8.5]
    quiet = create_noisy_and_quiet(store, 120, [NOW - seconds(offset) for offset in offsets])
    far = make_timer(
        store.catalogue.create_namespace("quiet", num_shards=1, dedicated=False, now=NOW)[0], "far", execute_at=FAR
    )
    create(store, far)

    pages = read_pages(store, limit=4, since=since, is_wanted=of_quiet)
    everything = [timer for page in pages for timer in page.timers]
    found = [timer for timer in everything if timer.namespace == "quiet"]

    assert sorted(found, key=lambda timer: timer.timer_id) == sorted(quiet, key=lambda timer: timer.timer_id)
    times = [timer.next_attempt_at for timer in everything if timer.next_attempt_at is not None]
    assert times == sorted(times)
    assert len({(timer.namespace, timer.timer_id) for timer in everything}) == len(everything)
    assert pages[-1].next_attempt_at == FAR


def test_a_page_looks_at_a_bounded_number_and_says_how_far_it_came(store: Store) -> None:
    create_noisy_and_quiet(store, 90, [NOW])
    asked = 0

    def of_nobody(namespace: str, callback_url: str) -> bool:
        nonlocal asked
        asked += bool(namespace and callback_url)
        return False

    pages, total = [read(store, limit=3, is_wanted=of_nobody)], 0
    while pages[-1].cursor is not None:
        assert asked <= 3 * LOOKED_AT_PER_TIMER
        total, asked = total + asked, 0
        pages.append(read(store, limit=3, cursor=pages[-1].cursor, is_wanted=of_nobody))
    total += asked

    left_out = 91 - sum(len(page.timers) for page in pages)
    assert left_out == total
    reached = [page.cursor_at for page in pages if page.cursor is not None and not page.timers]
    assert None not in reached
    assert all(at is not None and at <= NOW for at in reached)


def test_hosts_can_be_told_apart(store: Store, single: Namespace) -> None:
    urls = ["https://a.test/hook", "https://b.test/hook"]
    create(store, *(make_timer(single, f"t{n}", callback_url=urls[n % 2]) for n in range(20)))

    pages = read_pages(store, limit=50, is_wanted=lambda namespace, url: namespace == "single" and url == urls[1])

    found = [timer for page in pages for timer in page.timers]
    assert sum(timer.content.callback_url == urls[1] for timer in found) == 10


def test_parked_timers_and_those_that_are_too_late_are_read_whoever_is_wanted(
    store: Store, single: Namespace
) -> None:
    second = 1000
    late = NOW - seconds(10)
    names = {"parked": None, "late": 9 * second, "in time": 10 * second, "never late": None, "redriven": 9 * second}
    timers = create(
        store, *(make_timer(single, name, execute_at=late, expire_after_ms=limit) for name, limit in names.items())
    )
    record(store, [parked(timers[0], until=NOW - seconds(1)), failed(timers[4])], claim(store))
    store.timers.rearm(single, [TimerRef("redriven")], rearm=Rearm.REDRIVE, now=NOW)
    all_due = {timer.timer_id for timer in read(store).timers}

    found = read(store, is_wanted=lambda namespace, callback_url: not (namespace and callback_url))

    assert all_due == names.keys()
    assert {"parked", "late"} <= {timer.timer_id for timer in found.timers}
    assert found.next_attempt_at is None
    assert found.cursor is None


def test_a_page_of_wanted_timers_holds_little_when_payloads_are_large(store: Store) -> None:
    large = f'"{"x" * 262_000}"'
    quiet = store.catalogue.create_namespace("quiet", num_shards=1, dedicated=False, now=NOW)[0]
    create_noisy_and_quiet(store, 30, [])
    for n in range(40):
        create(store, make_timer(quiet, f"q{n}", payload_json=large if n % 5 else None))

    pages = read_pages(store, limit=100, is_wanted=of_quiet)

    assert all(payload_bytes(page.timers) <= PAGE_BYTES for page in pages)
    found = [timer.timer_id for page in pages for timer in page.timers if timer.namespace == "quiet"]
    assert sorted(found) == sorted(f"q{n}" for n in range(40))
