"""Service calls on Cassandra: what processes do to each other that meet at a call."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from duetime.domain.errors import StoreUnavailable
from duetime.domain.service_calls import ServiceCall, calls_namespace, timer_of
from duetime.stores.backends.cassandra import layout, places
from duetime.stores.backends.cassandra.changes import Hint
from duetime.stores.backends.cassandra.hints import Attempts, Hints
from duetime.stores.entities import SERVICE_CALL, TAGGED_CALLS, UNPUBLISHED
from duetime.stores.port.calls import ApplyStatus, CallFilter, CallRef
from duetime.testing.contract import call_builders as make
from duetime.testing.contract import call_steps as steps
from duetime.testing.contract.builders import seconds
from tests.support.cassandra import client_of, store_over
from tests.support.cassandra_calls import OpenedCalls, World, count_requests, world
from tests.support.cassandra_faults import Fault, Request, no_faults
from tests.support.clock import NOW

LATER = NOW + seconds(60)


@pytest.fixture
def cassandra() -> Iterator[World]:
    with world() as made:
        yield made


def before_the_change(cassandra: World, act: Callable[[], object]) -> None:
    """``act`` happens once, when the next conditional write of a call's partition arrives."""

    def meet(request: Request) -> Fault | None:
        if request.is_cas and request.tables == ("service_calls",):
            cassandra.network.faults = no_faults
            act()
        return None

    cassandra.network.faults = meet


def due(calls: OpenedCalls, call: ServiceCall) -> list[object]:
    return list(calls.timers.due(call.shard_id, until=NOW + seconds(3600), limit=10).timers)


@pytest.mark.parametrize("is_new", [True, False])
def test_a_change_whose_entries_were_cleared_away_begins_again(cassandra: World, is_new: bool) -> None:
    """A process that stands still for an hour between its entries and its change."""
    calls, other = cassandra.open(), cassandra.open()
    if is_new:
        transition = make.submitted(due_at=LATER, tags=("a",))
    else:
        transition = make.amended(steps.submit(calls), due_at=LATER, tags=("a",))

    def clear() -> None:
        cassandra.now_s += 3600
        due(other, transition.after)
        other.list(make.TENANT, CallFilter(tags=("a",)), cursor=None, limit=10, now=NOW)
        cassandra.now_s -= 3600

    before_the_change(cassandra, clear)

    assert calls.apply([transition], now=NOW) == [ApplyStatus.APPLIED]

    assert due(other, transition.after) == [timer_of(transition.after)]
    found = other.list(make.TENANT, CallFilter(tags=("a",)), cursor=None, limit=10, now=NOW).items
    assert [call.call_id for call in found] == [transition.after.call_id]


def test_a_key_whose_holder_does_not_come_to_its_end_is_taken_over(cassandra: World) -> None:
    """And the holder, when it goes on after all, finds that another call has its key."""
    slow, fast = cassandra.open(), cassandra.open()
    first, second = make.submitted(idempotency_key="k"), make.submitted(idempotency_key="k")
    results: list[ApplyStatus] = []

    def overtake() -> None:
        cassandra.now_s += 10
        results.extend(fast.apply([second], now=NOW))

    before_the_change(cassandra, overtake)

    assert slow.apply([first], now=NOW) == [ApplyStatus.EXISTS]
    assert results == [ApplyStatus.APPLIED]
    assert fast.find_by_idempotency_key(make.TENANT, "k", now=NOW) == second.after
    assert fast.get([steps.ref(first.after)], now=NOW) == [None]
    assert due(fast, first.after) == (
        [timer_of(second.after)] if first.after.shard_id == second.after.shard_id else []
    )


def test_what_was_submitted_and_not_committed_is_found_by_the_poller(cassandra: World) -> None:
    calls, other = cassandra.open(), cassandra.open()
    transition = make.submitted()
    cassandra.network.faults = dies_at_change()
    with pytest.raises(StoreUnavailable):
        calls.apply([transition], now=NOW)
    cassandra.network.faults = no_faults

    assert due(other, transition.after) == [timer_of(transition.after)]
    assert other.get([steps.ref(transition.after)], now=NOW) == [transition.after]


def dies_at_change() -> Callable[[Request], Fault | None]:
    """The change is accepted and not committed, and its process gets no answer from then on."""
    state = {"is_dead": False}

    def plan(request: Request) -> Fault | None:
        if state["is_dead"]:
            return Fault.NO_HOST
        if request.is_cas and request.tables == ("service_calls",):
            state["is_dead"] = True
            return Fault.UNFINISHED
        return None

    return plan


def test_a_change_that_was_made_before_its_answer_was_lost_is_told_as_made(cassandra: World) -> None:
    """Even if another process has changed the call since."""
    calls, other = cassandra.open(), cassandra.open()
    transition = make.submitted()

    def plan(request: Request) -> Fault | None:
        if request.is_cas and request.tables == ("service_calls",):
            cassandra.network.faults = go_on
            return Fault.LOST_AFTER
        return None

    def go_on(request: Request) -> Fault | None:
        cassandra.network.faults = no_faults
        assert other.apply([make.begun(transition.after)], now=NOW) == [ApplyStatus.APPLIED]
        return None

    cassandra.network.faults = plan

    assert calls.apply([transition], now=NOW) == [ApplyStatus.APPLIED]
    (found,) = calls.get([CallRef(make.TENANT, transition.after.call_id)], now=NOW)
    assert found is not None
    assert found.revision == 2


@pytest.mark.parametrize("is_made", [True, False])
def test_what_became_of_a_change_is_told_although_tidying_up_fails(cassandra: World, is_made: bool) -> None:
    calls, other = cassandra.open(), cassandra.open()
    call = steps.submit(calls)
    late = make.amended(call, due_at=LATER)
    if not is_made:
        steps.begin(other, call)
    cassandra.network.faults = lambda request: (
        Fault.NO_HOST if request.cql.startswith("DELETE") and request.tables == ("hints",) else None
    )

    assert calls.apply([late], now=NOW) == [ApplyStatus.APPLIED if is_made else ApplyStatus.SUPERSEDED]

    cassandra.network.faults = no_faults
    cassandra.now_s += 3600
    (stored,) = other.get([steps.ref(call)], now=NOW)
    assert stored is not None
    assert due(other, call) == [timer_of(stored)]


def test_the_requests_of_a_calls_life_are_few(cassandra: World) -> None:
    """Each step is one conditional write; what leads to the call is written before it and cleared away after it."""
    calls = cassandra.open()
    transition = make.submitted()

    submit = count_requests(cassandra.network, lambda: calls.apply([transition], now=NOW))
    begin = count_requests(cassandra.network, lambda: steps.begin(calls, transition.after))

    assert sorted(request.kind for request in submit) == ["batch", "cas_batch"] + ["write"] * 6
    assert submit[-1].kind == "cas_batch"
    assert sorted(request.kind for request in begin[:3]) == ["batch", "write", "write"]
    assert [request.kind for request in begin[3:]] == ["cas_batch"] + ["write"] * 3


def test_the_timer_of_a_call_is_read_by_its_id() -> None:
    """As from stores where it is a row of its own."""
    with store_over() as store:
        name = calls_namespace(make.TENANT)
        namespace, _ = store.catalogue.create_namespace(
            name, num_shards=4, dedicated=False, now=NOW, tenant_id=make.TENANT
        )
        call = steps.submit(store.calls, due_at=LATER)

        assert store.timers.get(namespace, call.call_id, now=NOW) == timer_of(call)
        done = steps.run(store.calls, call, now=LATER)
        assert store.timers.get(namespace, call.call_id, now=LATER) == timer_of(done)
        assert store.timers.get(namespace, "nobody", now=NOW) is None


def test_pages_of_many_calls_with_entries_that_are_wrong_among_them(cassandra: World) -> None:
    calls = cassandra.open()
    hints = Hints(client_of(cassandra.network), Attempts())
    by = layout.encode_by(SERVICE_CALL, TAGGED_CALLS, (make.TENANT, "a"))
    kept = []
    for number in range(60):
        call = steps.submit(calls, tags=("a",), now=NOW + seconds(number))
        if number % 3:
            calls.delete(make.TENANT, call.call_id, now=NOW)
            at = Hint(TAGGED_CALLS, by, place_of_call(call), (make.TENANT, call.call_id))
            hints.put([(at, f"{1_700_000_000_000_000:017d}-x")])
        else:
            kept.append(call.call_id)
    for _ in range(3):
        found: list[str] = []
        cursor: str | None = None
        while True:
            page = calls.list(make.TENANT, CallFilter(tags=("a",)), cursor=cursor, limit=7, now=NOW)
            found += [call.call_id for call in page.items]
            cursor = page.next_cursor
            if cursor is None:
                break
        assert found == sorted(kept, reverse=True)
    # All, its status, correlation, tag, name and due; when it wakes; and its event.
    left = [row for row in cassandra.rows("hints") if row["path"] != UNPUBLISHED.name]
    assert len(left) == len(kept) * 7


def place_of_call(call: ServiceCall) -> bytes:
    return places.encode(places.parts_of(SERVICE_CALL, TAGGED_CALLS.order), (call.call_id,))


@pytest.mark.parametrize("age_s", [0, 3600])
@pytest.mark.parametrize("number", range(1, 13))
def test_a_hint_whose_change_comes_while_it_is_looked_at_leads_there(
    cassandra: World, number: int, age_s: int
) -> None:
    """The change is in flight for so long, and arrives before any of the requests of a reader, who tidies up if it is
    old. No event of the change is seen without the earlier ones."""
    calls, other = cassandra.open(), cassandra.open()
    steps.submit(calls)  # so the tenant has events
    transition = make.submitted()
    call_id = transition.after.call_id
    sent: list[Request] = []

    def end_with_the_change(request: Request) -> Fault | None:
        if not sent and request.kind != "cas_batch":
            return None
        sent.append(request)
        return Fault.LATE if len(sent) == 1 else Fault.LOST_BEFORE

    cassandra.network.faults = end_with_the_change
    with pytest.raises(StoreUnavailable):
        calls.apply([transition], now=NOW)
    cassandra.now_s += age_s
    state = {"count": 0}

    def meet(request: Request) -> Fault | None:
        state["count"] += request.kind != "prepare" and request.tables == ("service_calls",)
        if state["count"] == number:
            cassandra.network.faults = no_faults
            cassandra.network.deliver_late()
        return None

    cassandra.network.faults = meet

    def sequences() -> list[int]:
        events = [stored.event for stored in other.outbox.unpublished(limit=9)]
        return [event.sequence for event in events if event.aggregate_id == call_id]

    found = sequences()
    assert found == list(range(1, len(found) + 1))
    cassandra.network.faults = no_faults
    if calls.get([steps.ref(transition.after)], now=NOW) == [transition.after]:
        assert sequences() == [event.sequence for event in transition.events]
        assert timer_of(transition.after) in due(other, transition.after)
    assert (state["count"] < number) == (cassandra.network._late != [])
