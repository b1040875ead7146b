"""Namespaces that get other shards while several processes create timers in them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from itertools import count
from random import Random
from typing import Any, Never

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duetime.api.context import NamespaceCache
from duetime.api.handler import build_handler
from duetime.app.namespace_states import resharded
from duetime.app.namespaces import NamespaceAccess
from duetime.app.timers import Stored, Timers
from duetime.domain.errors import NamespaceResharding, StoreUnavailable
from duetime.domain.namespaces import MAX_EARLIER_SHARDS, RESHARD_AFTER, RESHARD_PAUSE, Namespace
from duetime.stores.backend import Write
from duetime.stores.core.store import Store
from duetime.stores.entities import TIMER
from duetime.stores.port.timers import PutMode, PutStatus, TimerRef
from duetime.testing.contract.builders import NOW, RETENTION, fired, make_timer, seconds
from duetime.testing.contract.steps import claim, create, record
from tests.support.api import World, context_for
from tests.support.clock import FakeClock
from tests.support.dictionary import DictionaryBackend
from tests.support.http import Answer, Api
from tests.support.interleaving import Interleaving
from tests.support.parts import overlaid

PATH = "/v1/namespaces/default"
TIMER_BODY = {"delay": "1h", "callbackUrl": "https://receiver.test/hook"}
SWITCH_SECONDS = RESHARD_AFTER.total_seconds()
PAUSE_SECONDS = RESHARD_PAUSE.total_seconds()


def reshard(api: Api, num_shards: int = 16, *, if_match: str | None = None) -> Answer:
    headers = {} if if_match is None else {"if-match": if_match}
    return api.call("POST", f"{PATH}/reshard", {"numShards": num_shards}, headers=headers)


def put(api: Api, timer_id: str, **fields: Any) -> Answer:
    return api.call("PUT", f"{PATH}/timers/{timer_id}", TIMER_BODY | fields)


def moving(namespace: Namespace, num_shards: int = 16) -> Iterator[str]:
    """Ids of timers that another number of shards moves."""
    wider = Namespace("default", num_shards, 0, dedicated=False, created_at=NOW)
    return (each for each in (f"t{n}" for n in count()) if namespace.shard_of(each) != wider.shard_of(each))


def test_a_reshard_tells_when_it_takes_effect(world: World) -> None:
    answer = reshard(world.api)

    assert (answer.status, answer.headers["etag"], answer.json()["numShards"]) == (200, '"2"', 16)
    earlier = {"numShards": 4, "firstShard": 0, "until": "2026-12-20T15:32:00.000Z"}
    assert answer.json()["earlierShards"] == [earlier]
    assert world.api.get(PATH).json() == answer.json()
    assert len(world.api.get("/v1/shards").json()["items"]) == 16


def test_a_repeat_changes_nothing_and_another_number_waits(world: World) -> None:
    first = reshard(world.api).json()

    assert reshard(world.api).json() == first
    other = reshard(world.api, 8)
    assert (other.status, other.code) == (409, "namespace_conflict")
    assert "2026-12-20T15:32:00.000Z" in other.json()["detail"]
    world.clock.advance(SWITCH_SECONDS)
    assert reshard(world.api, 8).json()["numShards"] == 8


def test_a_namespace_can_be_resharded_so_often(world: World) -> None:
    for number in range(MAX_EARLIER_SHARDS):
        assert reshard(world.api, 5 + number).status == 200
        world.clock.advance(SWITCH_SECONDS)

    assert (reshard(world.api, 4).status, reshard(world.api, 4).code) == (409, "namespace_conflict")


@pytest.mark.parametrize("number", [0, 4097, "16", None, 1.5])
def test_a_bad_number_is_named(world: World, number: object) -> None:
    answer = world.api.call("POST", f"{PATH}/reshard", {"numShards": number})

    assert (answer.status, list(answer.faults)) == (400, ["numShards"])
    assert world.api.get(PATH).json()["revision"] == 1


def test_a_reshard_honours_if_match(world: World) -> None:
    assert reshard(world.api, if_match='"2"').status == 412
    assert reshard(world.api, if_match='"1"').status == 200
    assert world.api.call("POST", "/v1/namespaces/nobody/reshard", {"numShards": 2}).status == 404


def test_put_still_refuses_another_number(world: World) -> None:
    reshard(world.api)

    assert world.api.call("PUT", PATH, {"numShards": 4}).code == "namespace_conflict"
    assert world.api.call("PUT", PATH, {"numShards": 16, "maxInFlight": 5}).status == 200


def test_before_at_and_after_the_switch(world: World) -> None:
    others = Api(build_handler(context_for(world.store, world.clock)))  # another process, which knows it as it was
    assert put(others, "warm").status == 201
    ids = moving(world.namespace)
    until = world.clock.now() + RESHARD_AFTER
    reshard(world.api)

    def shard_of(timer_id: str) -> int:
        namespace = world.store.catalogue.get_namespace("default")
        assert namespace is not None
        timer = world.store.timers.get(namespace, timer_id, now=world.clock.now())
        assert timer is not None
        return timer.shard_id

    before = next(ids)
    assert put(others, before).status == 201
    assert shard_of(before) == world.namespace.shard_of(before)
    world.clock.advance(SWITCH_SECONDS - PAUSE_SECONDS - 0.001)
    assert put(others, next(ids)).status == 201
    world.clock.advance(0.001)
    waits = next(ids)
    for api in (world.api, others):
        answer = put(api, waits)
        assert (answer.status, answer.code, answer.headers["retry-after"]) == (503, "namespace_resharding", "20")
        batch = api.call("POST", f"{PATH}/timers/batch", {"timers": [TIMER_BODY | {"id": waits}]}).json()
        assert batch["items"][0]["problem"]["code"] == "namespace_resharding"
        assert api.patch(before, {"tags": ["a"]}).status == 200
    stays = next(f"s{n}" for n in count() if f"s{n}" not in moving_ids(world.namespace, 100))
    assert put(others, stays).status == 201
    world.clock.advance(PAUSE_SECONDS)
    assert world.clock.now() == until
    assert put(others, waits).status == 201
    assert shard_of(waits) not in range(4)
    repeat = others.call("POST", f"{PATH}/timers", TIMER_BODY | {"id": before})
    assert repeat.status == 409  # it has tags
    assert put(others, before, tags=["b"]).json()["revision"] == 4
    assert shard_of(before) == world.namespace.shard_of(before)
    listed = [each["id"] for each in world.api.list().json()["items"]]
    assert len(listed) == len(set(listed)) == 5


def test_what_has_to_wait_for_the_switch_is_no_error_in_the_log(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    reshard(world.api)
    world.clock.advance(SWITCH_SECONDS - PAUSE_SECONDS)

    assert put(world.api, next(moving(world.namespace))).status == 503

    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []


def moving_ids(namespace: Namespace, number: int) -> set[str]:
    wider = Namespace("default", 16, 0, dedicated=False, created_at=NOW)
    return {f"s{n}" for n in range(number) if namespace.shard_of(f"s{n}") != wider.shard_of(f"s{n}")}


def test_a_schedule_and_its_backfill_are_used_as_before(world: World) -> None:
    schedule = {"every": "1m", "startAt": "2026-12-20T15:00:00Z", "callbackUrl": "https://receiver.test/hook"}
    path = f"{PATH}/schedules/nightly"
    assert world.api.call("PUT", path, schedule).status == 201
    reshard(world.api)
    world.clock.advance(SWITCH_SECONDS)

    assert world.api.call("PATCH", path, {"tags": ["a"]}).status == 200
    assert world.api.call("PUT", path, schedule | {"tags": ["b"]}).status == 200
    times = {"from": "2026-12-20T15:00:00Z", "to": "2026-12-20T15:05:00Z"}
    assert world.api.call("POST", f"{path}/backfill", times).json()["created"] == 5
    assert world.api.call("POST", f"{path}/backfill/cancel").json()["cancelled"] == 5
    assert world.api.call("POST", f"{path}/trigger").status == 200
    assert [each["id"] for each in world.api.get(f"{PATH}/schedules").json()["items"]] == ["nightly"]
    assert world.api.call("DELETE", path).status == 200


# -- requests -----------------------------------------------------------------------------------------------------


class Counting(DictionaryBackend):
    def __init__(self) -> None:
        super().__init__()
        self.before: Callable[[], None] = lambda: None
        self.requests: list[str] = []

    def read(self, *args: Any, **named: Any) -> Any:
        self.before()
        self.requests.append("read")
        return super().read(*args, **named)

    def write(self, *args: Any, **named: Any) -> Any:
        self.before()
        self.requests.append("write")
        return super().write(*args, **named)

    def rows_of(self, timer_id: str) -> list[int]:
        with self._lock:
            return [shard for shard, _, name in self._rows[TIMER.name] if name == timer_id]


def requests(backend: Counting, act: Callable[[], object]) -> list[str]:
    backend.requests.clear()
    act()
    return list(backend.requests)


def test_who_is_not_resharded_pays_no_request_more() -> None:
    backend = Counting()
    store = Store(backend)
    plain, _ = store.catalogue.create_namespace("plain", num_shards=4, dedicated=False, now=NOW)
    wider = store.catalogue.reshard_namespace(plain, num_shards=16, until=NOW, now=NOW)
    assert wider is not None
    moved, stays = next(moving(plain)), next(n for n in (f"t{n}" for n in count()) if wider.shard_of(n) < 4)

    def asked(namespace: Namespace, timer_id: str) -> list[list[str]]:
        timers = store.timers
        return [
            requests(backend, lambda: timers.get(namespace, timer_id, now=NOW)),
            requests(backend, lambda: create(store, make_timer(namespace, timer_id))),
            requests(backend, lambda: timers.get(namespace, timer_id, now=NOW)),
            requests(backend, lambda: timers.delete(namespace, [TimerRef(timer_id)], now=NOW)),
        ]

    usual = [["read"], ["write"], ["read"], ["read", "write"]]
    assert asked(plain, moved) == asked(wider, stays) == usual
    assert asked(wider, moved) == [["read", "read"], ["read", "write"], ["read"], ["read", "write"]]


# -- any order ----------------------------------------------------------------------------------------------------

Prepare = Callable[[Store, Namespace, str], None]


def nothing(store: Store, namespace: Namespace, timer_id: str) -> None: ...


def waiting(store: Store, namespace: Namespace, timer_id: str) -> None:
    create(store, make_timer(namespace, timer_id))


def expired(store: Store, namespace: Namespace, timer_id: str) -> None:
    (timer,) = create(store, make_timer(namespace, timer_id))
    record(store, [fired(timer, at=NOW - RETENTION)], claim(store, namespace.shard_of(timer_id)))


@pytest.mark.parametrize("prepare", [nothing, waiting, expired])
def test_in_whatever_order_requests_come_an_id_is_there_once(prepare: Prepare) -> None:
    for seed in range(60):
        backend, chance = Counting(), Random(seed)
        store = Store(backend)
        before, _ = store.catalogue.create_namespace("default", num_shards=4, dedicated=False, now=NOW)
        timer_id = next(moving(before))
        prepare(store, before, timer_id)
        namespace = store.catalogue.reshard_namespace(before, num_shards=16, until=NOW, now=NOW)
        assert namespace is not None
        order = Interleaving(seed)

        def look(turn: Interleaving = order, seen: Counting = backend, name: str = timer_id) -> None:
            turn.gate()
            assert len(seen.rows_of(name)) <= 1

        backend.before = look
        acts: list[Callable[[], object]] = []
        for number in range(4):
            timer = make_timer(namespace, timer_id, payload_json=f"{number}")
            possible: list[Callable[[], object]] = [
                partial(store.timers.put, [timer], mode=PutMode.CREATE, now=NOW),
                partial(store.timers.put, [timer], mode=PutMode.REPLACE, now=NOW),
                partial(store.timers.delete, namespace, [TimerRef(timer_id)], now=NOW),
                partial(store.timers.prune, now=NOW, limit=9),
            ]
            acts.append(chance.choice(possible))

        results = order.run(acts)

        assert not [each for each in results if isinstance(each, BaseException)]
        backend.before = lambda: None
        rows = backend.rows_of(timer_id)
        assert len(rows) <= 1, seed
        last = [each[0].status for each in results if isinstance(each, list) and each]
        if PutStatus.CREATED in last and not any(each.func == store.timers.delete for each in acts):  # type: ignore[attr-defined]
            assert store.timers.get(namespace, timer_id, now=NOW) is not None, seed


# -- processes ----------------------------------------------------------------------------------------------------

MOST_SKEW = 4.0
MOST_WRITE = PAUSE_SECONDS - 2 * MOST_SKEW
"""How long a request may take, where clocks differ by so much."""


class Skewed:
    """The clock of a process: the true one, ahead by some seconds."""

    def __init__(self, true: FakeClock, ahead: float) -> None:
        self._true = true
        self._ahead = timedelta(seconds=ahead)

    def now(self) -> datetime:
        return self._true.now() + self._ahead

    def monotonic(self) -> float:
        return self._true.monotonic()


@dataclass
class Process:
    """An API process. ``slow``: writes that are under way, with the true time at which they arrive."""

    store: Store
    clock: Skewed
    is_cut_off: bool = False
    slow: list[tuple[datetime, list[Write], datetime]] = field(default_factory=list)

    def __post_init__(self) -> None:
        catalogue = overlaid(self.store.catalogue, get_namespace=self._get_namespace)
        self.namespaces = NamespaceCache(overlaid(self.store, catalogue=catalogue), self.clock)
        self.timers = Timers(self.store, self.clock, lambda _: None, RETENTION)

    def _get_namespace(self, name: str) -> Namespace | None:
        if self.is_cut_off:
            raise StoreUnavailable("the catalogue does not answer")
        return self.store.catalogue.get_namespace(name)


class UnderWayError(Exception):
    """The response to a write has not come yet."""


class Fleet:
    """Three processes, and what they were told is stored: the firing of each timer, by its id."""

    def __init__(self, skews: list[float]) -> None:
        self.backend, self.true = Counting(), FakeClock()
        self.store = Store(self.backend)
        self.store.catalogue.create_namespace("default", num_shards=2, dedicated=False, now=NOW)
        self.processes = [Process(self.store, Skewed(self.true, each)) for each in skews]
        self.there: dict[str, str] = {}
        self._numbers = count()

    def do(self, action: str, process: Process, timer_id: str) -> None:
        now = process.clock.now()
        if action == "crash":
            process.slow.clear()
            process.namespaces.forget("default")
        elif action == "delete":
            space = process.namespaces.get("default", None)
            process.timers.delete_many(space, [TimerRef(timer_id)], now=now)
            self.there.pop(timer_id, None)
        elif action == "read":
            space = process.namespaces.get("default", None)
            found = self.store.timers.get(space, timer_id, now=now)
            assert (None if found is None else found.firing_id) == self.there.get(timer_id)
        else:
            self._store(action, process, timer_id, now)

    def _store(self, action: str, process: Process, timer_id: str, now: datetime) -> None:
        namespace, payload = process.namespaces.open("default", None), f"{next(self._numbers)}"
        timer = make_timer(namespace, timer_id, now=now, execute_at=NOW + RETENTION, payload_json=payload)
        mode = PutMode.REPLACE if action == "replace" else PutMode.CREATE
        if action == "slow":
            arrives_at = self.true.now() + seconds(MOST_WRITE)

            def send(writes: list[Write], *, now: datetime) -> Never:
                process.slow.append((arrives_at, writes, now))
                raise UnderWayError

            slow = Store(overlaid(self.backend, write=send))
            with suppress(UnderWayError):
                slow.timers.put([timer], mode=mode, now=now)
            return
        (result,) = process.timers.put_many([timer], mode=mode, now=now)
        if isinstance(result, Stored) and (result.is_new or mode is PutMode.REPLACE):
            self.there[timer.timer_id] = result.timer.firing_id

    def advance(self, by: float) -> None:
        end = self.true.now() + seconds(by)
        slow = [(*each, process) for process in self.processes for each in process.slow if each[0] <= end]
        for at, writes, now, process in sorted(slow, key=lambda each: each[0]):
            self.true.advance((at - self.true.now()).total_seconds())
            process.slow.remove((at, writes, now))
            (write,) = writes
            if self.backend.write(writes, now=now).results[0].is_written:
                self.there[str(write.key[2])] = str(write.row[TIMER.places["timer_firing_id"]])
        self.true.advance((end - self.true.now()).total_seconds())


MOVES = next(moving(Namespace("default", 2, 0, dedicated=False, created_at=NOW), 3))
ACTIONS = ["create", "create", "slow", "slow", "replace", "delete", "read", "crash"]
FROM_SWITCH = [-100.0, -61.0, -45.0, -31.0, -24.0, -21.0, -20.0, -16.5, -15.5, -8.0, -4.0, -1.0, 0.0, 1.0, 4.5, 12.0]
STEPS = st.lists(
    st.tuples(st.sampled_from(FROM_SWITCH), st.sampled_from(ACTIONS), st.integers(0, 2)), min_size=2, max_size=16
)
"""What is done how long after the switch, and by which process."""


@settings(max_examples=100, deadline=None)
@given(
    rounds=st.lists(STEPS, min_size=1, max_size=2),
    skews=st.lists(st.sampled_from([-MOST_SKEW, 0.0, MOST_SKEW]), min_size=3, max_size=3),
    cut_off=st.lists(st.booleans(), min_size=3, max_size=3),
)
def test_processes_with_old_knowledge_and_slow_writes_keep_each_id_once(
    rounds: list[list[tuple[float, str, int]]], skews: list[float], cut_off: list[bool]
) -> None:
    fleet = Fleet(skews)
    for number, steps in enumerate(rounds):
        for process, is_cut_off in zip(fleet.processes, cut_off, strict=True):
            process.is_cut_off = False
            fleet.do("read", process, MOVES)
            process.is_cut_off = is_cut_off
        resharded(NamespaceAccess(fleet.store, None, fleet.true.now()), "default", 3 - number)
        switch = fleet.true.now() + RESHARD_AFTER
        for offset, action, which in sorted(steps, key=lambda each: each[0]):
            fleet.advance((switch - fleet.true.now()).total_seconds() + offset)
            with suppress(StoreUnavailable, NamespaceResharding):
                fleet.do(action, fleet.processes[which], MOVES)
            assert len(fleet.backend.rows_of(MOVES)) == (MOVES in fleet.there)
        fleet.advance(SWITCH_SECONDS)
        assert len(fleet.backend.rows_of(MOVES)) == (MOVES in fleet.there)
    for process in fleet.processes:
        process.is_cut_off = False
        fleet.do("read", process, MOVES)
