"""Namespaces that get other shards: timers that are there stay, and each is found wherever it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from itertools import count

import pytest

from duetime.domain.ids import backfill_timer_id
from duetime.domain.namespaces import RESHARD_AFTER, EarlierShards, Namespace, NamespaceSettings
from duetime.domain.schedule_timers import backfilled
from duetime.domain.schedules import Occurrence
from duetime.domain.shards import ShardMap
from duetime.domain.timers import Rearm, Timer, TimerChange, TimerState
from duetime.stores.core.store import Store
from duetime.stores.port.pages import Page
from duetime.stores.port.timers import ChangeStatus, PutMode, PutResult, PutStatus, TimerFilter, TimerRef
from duetime.testing.contract.builders import NOW, RETENTION, fired, make_timer, make_timers, seconds
from duetime.testing.contract.fixtures import AtOnce
from duetime.testing.contract.schedules import MINUTE, after, make_schedule, states, stored_schedule
from duetime.testing.contract.steps import claim, create, due, read_all, record, stored
from duetime.testing.contract.timers.lists import listed

SWITCH = NOW + RESHARD_AFTER
LATER = SWITCH + seconds(1)


def reshard(store: Store, namespace: Namespace, num_shards: int, *, now: datetime = NOW) -> Namespace:
    done = store.catalogue.reshard_namespace(namespace, num_shards=num_shards, until=now + RESHARD_AFTER, now=now)
    assert done is not None
    return done


@pytest.fixture
def wider(store: Store, single: Namespace) -> Namespace:
    """Return the namespace ``single`` after the switch to four shards."""
    return reshard(store, single, 4)


def moving_id(namespace: Namespace) -> str:
    """Return the id of a timer whose shard the last reshard changes."""
    ids = (f"m{each}" for each in count())
    return next(each for each in ids if namespace.earlier_shards[-1].shard_of(each) != namespace.shard_of(each))


def put(store: Store, *timers: Timer, mode: PutMode = PutMode.CREATE, now: datetime = LATER) -> list[PutResult]:
    return store.timers.put(timers, mode=mode, now=now)


def all_of(store: Store, namespace: Namespace) -> list[tuple[int, str]]:
    return [(each.shard_id, each.timer_id) for each in listed(store, namespace)]


def test_a_namespace_gets_other_shards(store: Store, orders: Namespace) -> None:
    resharded = reshard(store, orders, 16)

    assert resharded == replace(orders, num_shards=16, revision=2, earlier_shards=(EarlierShards(4, 0, SWITCH),))
    assert store.catalogue.get_namespace("orders") == resharded
    assert store.catalogue.shard_map() == ShardMap(shared_shards=16)


def test_a_reshard_needs_the_revision(store: Store, orders: Namespace) -> None:
    reshard(store, orders, 16)

    assert store.catalogue.reshard_namespace(orders, num_shards=8, until=SWITCH, now=NOW) is None
    nobody = replace(orders, name="nobody")
    assert store.catalogue.reshard_namespace(nobody, num_shards=8, until=SWITCH, now=NOW) is None
    assert store.catalogue.get_namespace("nobody") is None
    assert store.catalogue.shard_map() == ShardMap(shared_shards=16)


def test_settings_and_shards_change_apart(store: Store, orders: Namespace) -> None:
    settings = NamespaceSettings(max_in_flight=7)
    store.catalogue.update_namespace(replace(orders, settings=settings), if_revision=1, now=NOW)
    resharded = reshard(store, replace(orders, revision=2), 2)
    assert resharded.settings == settings

    updated = store.catalogue.update_namespace(orders, if_revision=3, now=NOW)

    assert updated == replace(resharded, settings=NamespaceSettings(), revision=4)


def test_a_dedicated_namespace_gets_a_range_that_is_fresh(store: Store) -> None:
    vip, _ = store.catalogue.create_namespace("vip", num_shards=2, dedicated=True, now=NOW)
    other, _ = store.catalogue.create_namespace("other", num_shards=3, dedicated=True, now=NOW)

    resharded = reshard(store, vip, 4)

    assert resharded.first_shard == other.first_shard + 3
    assert store.catalogue.shard_map() == ShardMap(dedicated_end=resharded.first_shard + 4)
    create(store, *make_timers(vip, 5), *make_timers(other, 5))
    create(store, *make_timers(resharded, 5, prefix="n", now=LATER), now=LATER)
    assert sorted(each for _, each in all_of(store, resharded)) == [
        *(f"n000{each}" for each in range(5)),
        *(f"t000{each}" for each in range(5)),
    ]


def test_new_timers_go_to_the_new_shards_from_the_switch_on(store: Store, wider: Namespace) -> None:
    first, second = moving_id(wider), "other"
    create(store, make_timer(wider, first), make_timer(wider, second))
    stayed = [(0, first), (0, second)]
    assert all_of(store, wider) == sorted(stayed)
    new = make_timers(wider, 8, now=LATER)

    create(store, *new, now=LATER)

    assert {each.shard_id for each in new} == set(wider.shard_ids())
    assert all_of(store, wider) == sorted([*stayed, *((each.shard_id, each.timer_id) for each in new)])


def test_timers_are_found_where_they_are(store: Store, wider: Namespace, single: Namespace) -> None:
    timers = create(store, *make_timers(single, 8))

    for timer in timers:
        assert stored(store, wider, timer.timer_id, now=LATER) == timer
    ids = [each.timer_id for each in timers]
    change = TimerChange(tags=("a",))
    changed = [store.timers.update(wider, each, change, firing_id="f", now=LATER).timer for each in ids]
    assert [each and (each.shard_id, each.revision, each.content.tags) for each in changed] == [(0, 2, ("a",))] * 8
    refs = [TimerRef(each, 2) for each in ids]
    cancelled = store.timers.rearm(wider, refs, rearm=Rearm.CANCEL, now=LATER, expires_at=LATER + RETENTION)
    assert {each.status for each in cancelled} == {ChangeStatus.APPLIED}
    assert all_of(store, wider) == [(0, each) for each in ids]
    removed = store.timers.delete(wider, [TimerRef(each) for each in [*ids, "none"]], now=LATER)
    assert [each.status for each in removed] == [ChangeStatus.APPLIED] * 8 + [ChangeStatus.NOT_FOUND]
    assert all_of(store, wider) == []


def test_a_timer_on_an_earlier_shard_fires_there(store: Store, wider: Namespace, single: Namespace) -> None:
    timers = create(store, *make_timers(single, 3))

    assert due(store, wider, until=LATER) == timers
    record(store, [fired(each, at=LATER) for each in timers], claim(store, now=LATER), now=LATER)

    assert {stored(store, wider, each.timer_id, now=LATER).state for each in timers} == {TimerState.FIRED}


@pytest.mark.parametrize("mode", PutMode)
def test_a_repeat_meets_the_timer_on_its_earlier_shard(
    store: Store, wider: Namespace, single: Namespace, mode: PutMode
) -> None:
    (timer,) = create(store, make_timer(single, moving_id(wider)))

    assert put(store, make_timer(wider, timer.timer_id, now=LATER), mode=mode) == [
        PutResult(PutStatus.UNCHANGED, timer)
    ]
    assert all_of(store, wider) == [(0, timer.timer_id)]


def test_other_content_meets_the_timer_on_its_earlier_shard(
    store: Store, wider: Namespace, single: Namespace
) -> None:
    (timer,) = create(store, make_timer(single, moving_id(wider)))
    other = make_timer(wider, timer.timer_id, now=LATER, payload_json="2")
    new = make_timer(wider, "new", now=LATER)

    refused, created = put(store, other, new)
    (replaced,) = put(store, other, mode=PutMode.REPLACE)
    (again,) = store.timers.put([replace(other, digest="again")], mode=PutMode.REPLACE, now=LATER, if_revision=2)

    assert (refused.status, created.status) == (PutStatus.CONFLICT, PutStatus.CREATED)
    assert (replaced.status, again.status) == (PutStatus.REPLACED, PutStatus.REPLACED)
    assert again.timer == stored(store, wider, timer.timer_id, now=LATER)
    assert (again.timer.shard_id, again.timer.revision) == (0, 3)
    assert sorted(all_of(store, wider)) == sorted([(0, timer.timer_id), (new.shard_id, "new")])


def test_an_id_that_is_free_again_goes_to_its_new_shard(store: Store, wider: Namespace, single: Namespace) -> None:
    (timer,) = create(store, make_timer(single, moving_id(wider)))
    store.timers.delete(wider, [TimerRef(timer.timer_id)], now=LATER)

    create(store, make_timer(wider, timer.timer_id, now=LATER), now=LATER)

    assert all_of(store, wider) == [(wider.shard_of(timer.timer_id), timer.timer_id)]


@pytest.mark.parametrize("mode", PutMode)
def test_a_timer_in_the_place_of_an_expired_one_is_there_once(
    store: Store, wider: Namespace, single: Namespace, mode: PutMode
) -> None:
    (timer,) = create(store, make_timer(single, moving_id(wider)))
    record(store, [fired(timer)], claim(store))
    long_after = LATER + RETENTION
    new = make_timer(wider, timer.timer_id, now=long_after, payload_json="2")

    (result,) = put(store, new, mode=mode, now=long_after)

    assert result.status is PutStatus.CREATED
    assert result.timer == stored(store, wider, timer.timer_id, now=long_after)
    page = store.timers.list(wider, TimerFilter(), cursor=None, limit=9, now=long_after)
    assert page == Page([result.timer], page.next_cursor)


def test_an_id_is_created_once_by_many_at_once(
    store: Store, wider: Namespace, single: Namespace, at_once: AtOnce
) -> None:
    (timer,) = create(store, make_timer(single, moving_id(wider)))

    def act(index: int) -> Sequence[object]:
        if index == 0:
            return store.timers.delete(wider, [TimerRef(timer.timer_id)], now=LATER)
        mode = PutMode.REPLACE if index % 2 else PutMode.CREATE
        return put(store, make_timer(wider, timer.timer_id, now=LATER, payload_json=f"{index}"), mode=mode)

    at_once(act)

    assert len(all_of(store, wider)) <= 1


@pytest.mark.parametrize("limit", [1, 3, 100])
def test_a_list_has_timers_of_all_shards_once(store: Store, orders: Namespace, limit: int) -> None:
    before = create(store, *make_timers(orders, 9, tags=("a",)))
    fewer = reshard(store, orders, 2)
    more = reshard(store, fewer, 8, now=LATER)
    assert list(more.shard_ids()) == list(range(8))
    now = LATER + RESHARD_AFTER
    new = create(store, *make_timers(more, 9, prefix="n", now=now, tags=("a",)), now=now)

    found = listed(store, more, limit=limit)
    tagged = listed(store, more, TimerFilter(tag="a"), limit=limit)

    assert found == tagged == sorted([*before, *new], key=lambda timer: (timer.shard_id, timer.timer_id))


def test_timers_of_all_shards_are_found_by_correlation(store: Store, orders: Namespace) -> None:
    create(store, *make_timers(orders, 9, correlation_id="c"))
    fewer = reshard(store, orders, 2)
    create(store, *make_timers(fewer, 9, prefix="n", now=LATER, correlation_id="c"), now=LATER)

    found = read_all(lambda cursor: store.timers.find_by_correlation(fewer, "c", cursor=cursor, limit=2, now=LATER))

    assert sorted(each.timer_id for each in found) == [f"{each}000{number}" for each in "nt" for number in range(9)]


def test_a_list_ends_behind_the_shards_that_are_known(store: Store, orders: Namespace) -> None:
    create(store, *make_timers(orders, 9))
    page = store.timers.list(orders, TimerFilter(), cursor=None, limit=8, now=NOW)
    assert page.items[-1].shard_id > 0
    single = replace(orders, num_shards=1)

    assert store.timers.list(single, TimerFilter(), cursor=page.next_cursor, limit=9, now=NOW) == Page([], None)


def test_a_timer_is_found_after_several_reshards(store: Store, single: Namespace) -> None:
    namespace, now, known = single, NOW, []
    for number, num_shards in enumerate((4, 1, 3, 4)):
        timer = make_timer(namespace, f"t{number}", now=now)
        known += create(store, timer, now=now)
        namespace = reshard(store, namespace, num_shards, now=now)
        now += RESHARD_AFTER

    assert [stored(store, namespace, each.timer_id, now=now) for each in known] == known
    repeats = [make_timer(namespace, each.timer_id, now=now) for each in known]
    assert [each.status for each in put(store, *repeats, now=now)] == [PutStatus.UNCHANGED] * 4


def test_a_schedule_stays_with_its_occurrences_and_history(store: Store, wider: Namespace, single: Namespace) -> None:
    ids = [f"s{each}" for each in range(6)]
    create(store, *(make_schedule(single, each) for each in ids))
    schedule = stored_schedule(store, wider, "s1")
    record(store, [after(fired(schedule))], claim(store))
    schedule = stored_schedule(store, wider, "s1")
    sent = backfilled(schedule, Occurrence(NOW, LATER), began_at=NOW, now=LATER)
    create(store, sent, now=LATER)

    result = store.schedules.change(
        wider,
        "s1",
        lambda timer: replace(timer, revision=timer.revision + 1, next_attempt_at=NOW + MINUTE),
        now=LATER,
    )

    assert result.status is ChangeStatus.APPLIED
    assert len(states(store, stored_schedule(store, wider, "s1"))) == 1
    found = read_all(lambda cursor: store.schedules.list(wider, cursor=cursor, limit=2, now=LATER))
    assert [each.schedule_id for each in found] == ids
    pages = read_all(
        lambda cursor: store.schedules.beside(wider, backfill_timer_id("s1"), cursor=cursor, limit=2, now=LATER)
    )
    assert [each.timer_id for each in pages] == [backfill_timer_id("s1", NOW)]
    assert {each.shard_id for each in (*found, *pages)} == {0}
