from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duetime.calls.publishing import LogPublisher
from duetime.calls.relay import MAX_BLOCKED, OUTBOX_SHARD, OutboxRelay
from duetime.domain.call_events import CallEvent
from duetime.domain.errors import StoreUnavailable
from tests.support.clock import NOW, FakeClock
from tests.support.logs import actions
from tests.support.outbox import (
    FakeLeases,
    FakeOutbox,
    RecordingPublisher,
    first_occurrences,
    make_event,
    make_relay,
)
from tests.support.stores import memory_store


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def outbox() -> FakeOutbox:
    return FakeOutbox()


@pytest.fixture
def publisher() -> RecordingPublisher:
    return RecordingPublisher()


def test_events_are_published_then_marked(
    outbox: FakeOutbox, publisher: RecordingPublisher, clock: FakeClock
) -> None:
    outbox.append(make_event("a", 1), make_event("b", 1), make_event("a", 2))
    relay = make_relay(outbox, [publisher], clock)
    assert relay.run_once() == 1.0
    assert [(event.aggregate_id, event.sequence) for event in publisher.taken] == [("a", 1), ("b", 1), ("a", 2)]
    assert outbox.waiting == []
    assert relay.stats.counters()["outbox_published"] == 3


def test_no_publisher_gets_two_events_of_a_call_at_once(
    outbox: FakeOutbox, publisher: RecordingPublisher, clock: FakeClock
) -> None:
    outbox.append(*(make_event("a", number) for number in (1, 2, 3)), make_event("b", 1))
    make_relay(outbox, [publisher], clock).run_once()
    assert [[(event.aggregate_id, event.sequence) for event in batch] for batch in publisher.batches] == [
        [("a", 1), ("b", 1)],
        [("a", 2)],
        [("a", 3)],
    ]


def test_a_full_page_asks_for_another_turn_at_once(
    outbox: FakeOutbox, publisher: RecordingPublisher, clock: FakeClock
) -> None:
    outbox.append(*(make_event("a", number) for number in range(1, 8)))
    relay = make_relay(outbox, [publisher], clock, batch=3)
    assert [relay.run_once(), relay.run_once()] == [0.0, 0.0]
    assert relay.run_once() == 1.0
    assert publisher.sequences("a") == list(range(1, 8))


def test_a_failing_event_blocks_only_its_own_call(
    outbox: FakeOutbox, publisher: RecordingPublisher, clock: FakeClock
) -> None:
    publisher.broken_calls = {"bad"}
    outbox.append(make_event("bad", 1), make_event("good", 1), make_event("bad", 2))
    relay = make_relay(outbox, [publisher], clock)
    assert relay.run_once() == 0.5
    outbox.append(make_event("good", 2))
    relay.run_once()
    assert publisher.sequences("good") == [1, 2]
    assert publisher.sequences("bad") == []
    publisher.broken_calls = set()
    clock.advance(0.5)
    relay.run_once()
    assert publisher.sequences("bad") == [1, 2]
    assert outbox.waiting == []


def test_back_off_grows_has_jitter_and_ends(
    outbox: FakeOutbox, publisher: RecordingPublisher, clock: FakeClock
) -> None:
    publisher.is_down = True
    outbox.append(make_event())
    randoms = iter([0.0, 1 - 1e-9] * 10)
    relay = make_relay(
        outbox,
        [publisher],
        clock,
        random=lambda: next(randoms),
        poll_interval_seconds=1e6,
        prune_interval_seconds=1e9,
    )
    waits = []
    for _ in range(9):
        waits.append(relay.run_once())
        clock.advance(waits[-1])
    # The second random number is the pruning's.
    assert [round(wait, 2) for wait in waits] == [0.38, 0.75, 2.5, 3.0, 10.0, 12.0, 40.0, 45.0, 75.0]
    publisher.is_down = False
    relay.run_once()
    assert publisher.sequences("call-1") == [1]
    assert relay.stats.failures == 9


def test_an_outage_of_the_publisher_never_spins_and_holds_no_event_for_ever(
    outbox: FakeOutbox, publisher: RecordingPublisher, clock: FakeClock
) -> None:
    publisher.is_down = True
    outbox.append(*(make_event(f"call-{number}") for number in range(MAX_BLOCKED + 400)))
    relay = make_relay(outbox, [publisher], clock)
    turns = 0
    elapsed = 0.0
    while elapsed < 600:
        seconds = relay.run_once()
        turns += 1
        elapsed += seconds
        clock.advance(seconds)
    tries = sum(len(batch) for batch in publisher.batches)
    assert tries < 30 * (MAX_BLOCKED + 400)  # ten minutes: about 7 to get to a minute apart, then one a minute
    assert turns < 20_000
    publisher.is_down = False
    for _ in range(200):
        clock.advance(relay.run_once())
    assert outbox.waiting == []


def test_hints_are_ignored_while_everything_is_blocked(
    outbox: FakeOutbox, publisher: RecordingPublisher, clock: FakeClock
) -> None:
    publisher.is_down = True
    outbox.append(*(make_event(f"call-{number}") for number in range(MAX_BLOCKED + 201)))
    relay = make_relay(outbox, [publisher], clock)
    while relay.run_once() == 0.0:
        pass
    reads = outbox.reads
    assert relay.run_once() > 0
    assert outbox.reads == reads


def test_a_store_that_is_back_is_read_within_a_second_however_long_it_was_down(
    outbox: FakeOutbox, publisher: RecordingPublisher, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    relay = make_relay(outbox, [publisher], clock, random=lambda: 1 - 1e-9)
    outbox.is_down = True
    waits = [relay.run_once() for _ in range(100)]
    assert 0.5 < min(waits) <= max(waits) < 1.0
    assert len(caplog.records) == 5
    outbox.is_down = False
    outbox.append(make_event())
    assert relay.run_once() == 1.0
    assert publisher.sequences("call-1") == [1]
    assert relay.stats.store_errors == 100


def test_what_a_publisher_could_not_store_goes_out_within_a_second_of_the_stores_return(
    outbox: FakeOutbox, publisher: RecordingPublisher, clock: FakeClock
) -> None:
    outbox.append(make_event())
    relay = make_relay(outbox, [publisher], clock, poll_interval_seconds=1e6, prune_interval_seconds=1e9)
    publisher.reason = StoreUnavailable.code
    publisher.is_down = True
    for _ in range(20):
        clock.advance(relay.run_once())
    publisher.is_down = False
    clock.advance(1.0)
    relay.run_once()
    assert publisher.sequences("call-1") == [1]


def test_an_event_that_was_published_and_not_marked_comes_again(
    outbox: FakeOutbox, publisher: RecordingPublisher, clock: FakeClock
) -> None:
    outbox.append(make_event("a", 1), make_event("a", 2))
    outbox.is_marking_down = True
    make_relay(outbox, [publisher], clock).run_once()
    outbox.is_marking_down = False
    outbox.append(make_event("a", 3))
    make_relay(outbox, [publisher], clock).run_once()
    assert publisher.sequences("a") == [1, 2, 1, 2, 3]
    assert outbox.waiting == []


def test_a_publisher_that_crashes_is_told_of_and_tried_again(
    outbox: FakeOutbox, publisher: RecordingPublisher, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    publisher.crash = RuntimeError("bug")
    outbox.append(make_event())
    relay = make_relay(outbox, [publisher], clock)
    relay.run_once()
    assert actions(caplog, logging.WARNING) == {"outbox.publisher_crashed": 1, "outbox.publish_failed": 1}
    publisher.crash = None
    clock.advance(1)
    relay.run_once()
    assert outbox.waiting == []


def test_every_publisher_must_take_an_event_before_it_is_marked(outbox: FakeOutbox, clock: FakeClock) -> None:
    first, second = RecordingPublisher(), RecordingPublisher()
    second.broken_calls = {"a"}
    outbox.append(make_event("a", 1), make_event("b", 1), make_event("a", 2))
    relay = make_relay(outbox, [first, second], clock)
    relay.run_once()
    assert [event.aggregate_id for event in outbox.waiting] == ["a", "a"]
    assert first.sequences("a") == [1]  # nothing that follows the one that failed
    second.broken_calls = set()
    clock.advance(1)
    relay.run_once()
    assert second.sequences("a") == [1, 2]
    assert first_occurrences(first.sequences("a")) == [1, 2]


# -- the lease -----------------------------------------------------------------------------------------------------


def test_one_relay_at_a_time_and_the_next_goes_on_after_a_release(outbox: FakeOutbox, clock: FakeClock) -> None:
    leases = FakeLeases()
    first, second = RecordingPublisher(), RecordingPublisher()
    holder = make_relay(outbox, [first], clock, leases=leases, owner_id="a")
    other = make_relay(outbox, [second], clock, leases=leases, owner_id="b")
    outbox.append(make_event())
    holder.run_once()
    assert other.run_once() == pytest.approx(10 / 3)
    outbox.append(make_event(sequence=2))
    holder.release()
    other.run_once()
    assert first.sequences("call-1") == [1]
    assert second.sequences("call-1") == [2]
    assert (holder.stats.is_active, other.stats.is_active) == (0, 1)


def test_a_holder_that_dies_is_succeeded_when_its_lease_ends(
    outbox: FakeOutbox, publisher: RecordingPublisher, clock: FakeClock
) -> None:
    leases = FakeLeases()
    make_relay(outbox, [RecordingPublisher()], clock, leases=leases, owner_id="dead").run_once()
    other = make_relay(outbox, [publisher], clock, leases=leases, owner_id="b")
    outbox.append(make_event())
    clock.advance(9.9)
    other.run_once()
    assert publisher.taken == []
    clock.advance(0.2)
    other.run_once()
    assert publisher.sequences("call-1") == [1]


def test_a_holder_that_has_died_is_succeeded_at_once(
    outbox: FakeOutbox, publisher: RecordingPublisher, clock: FakeClock
) -> None:
    leases = FakeLeases()
    make_relay(outbox, [RecordingPublisher()], clock, leases=leases, owner_id="dead").run_once()
    other = make_relay(
        outbox, [publisher], clock, leases=leases, owner_id="b", has_died=lambda owner: owner == "dead"
    )
    outbox.append(make_event())
    other.run_once()
    assert publisher.sequences("call-1") == [1]


def test_a_holder_that_paused_for_longer_than_its_lease_finds_out_before_it_publishes(
    outbox: FakeOutbox, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    leases = FakeLeases()
    first, second = RecordingPublisher(), RecordingPublisher()
    paused = make_relay(outbox, [first], clock, leases=leases, owner_id="a")
    other = make_relay(outbox, [second], clock, leases=leases, owner_id="b")
    paused.run_once()
    clock.advance(60)
    other.run_once()
    outbox.append(make_event())
    paused.run_once()
    assert first.taken == []
    assert actions(caplog)["outbox.lost"] == 1


def test_the_lease_is_renewed_for_as_long_as_the_holder_works(
    outbox: FakeOutbox, publisher: RecordingPublisher, clock: FakeClock
) -> None:
    leases = FakeLeases()
    holder = make_relay(outbox, [publisher], clock, leases=leases, owner_id="a")
    other = make_relay(outbox, [RecordingPublisher()], clock, leases=leases, owner_id="b")
    for _ in range(100):
        clock.advance(min(holder.run_once(), 1.0))
        other.run_once()
    assert (holder.stats.is_active, other.stats.is_active) == (1, 0)


def test_the_reserved_shard_is_in_no_list_of_a_real_store(
    outbox: FakeOutbox, publisher: RecordingPublisher, clock: FakeClock
) -> None:
    with memory_store() as store:
        store.catalogue.create_namespace("orders", num_shards=4, dedicated=False, now=NOW)
        holder = make_relay(outbox, [publisher], clock, leases=store.leases, owner_id="a")
        other = make_relay(outbox, [publisher], clock, leases=store.leases, owner_id="b")
        holder.run_once()
        other.run_once()
        assert (holder.stats.is_active, other.stats.is_active) == (1, 0)
        assert OUTBOX_SHARD not in store.catalogue.shard_map().shard_ids()
        holder.release()
        clock.advance(4)
        other.run_once()
        assert other.stats.is_active == 1


# -- the rest ------------------------------------------------------------------------------------------------------


def test_pruning_goes_on_while_there_is_more_and_keeps_to_the_retention(
    outbox: FakeOutbox, publisher: RecordingPublisher, clock: FakeClock
) -> None:
    outbox.prunable = 12
    relay = make_relay(outbox, [publisher], clock, prune_limit=5, retention_seconds=3600)
    assert [relay.run_once() for _ in range(4)] == [0.0, 0.0, 1.0, 1.0]
    assert outbox.prunable == 0
    assert len(outbox.prunes) == 3
    assert {(NOW - before).total_seconds() for before in outbox.prunes} == {3600}
    clock.advance(60)
    relay.run_once()
    assert len(outbox.prunes) == 4


def test_a_hint_wakes_it_at_once_and_a_stop_gives_the_lease_back(outbox: FakeOutbox) -> None:
    from duetime.runtime.clock import SystemClock

    leases = FakeLeases()
    is_published = threading.Event()

    class Signalling(RecordingPublisher):
        def publish(self, events: Sequence[CallEvent]) -> Mapping[str, str]:
            refused = super().publish(events)
            is_published.set()
            return refused

    relay = make_relay(outbox, [Signalling()], SystemClock(), leases=leases, poll_interval_seconds=3600)
    thread = threading.Thread(target=relay.run)
    thread.start()
    try:
        outbox.append(make_event())
        relay.notify()
        assert is_published.wait(30)
    finally:
        relay.stop()
        thread.join(30)
    assert not thread.is_alive()
    other = make_relay(outbox, [RecordingPublisher()], SystemClock(), leases=leases)
    other.run_once()
    assert other.stats.is_active == 1


def test_gauges_tell_of_the_backlog_and_its_age(
    outbox: FakeOutbox, publisher: RecordingPublisher, clock: FakeClock
) -> None:
    publisher.broken_calls = {"bad"}
    outbox.append(make_event("bad", 1), make_event("good", 1))
    relay = make_relay(outbox, [publisher], clock)
    clock.advance(42)
    relay.run_once()
    assert relay.stats.gauges() == {"outbox_backlog": 2, "outbox_oldest_seconds": 42, "outbox_active": 1}
    relay.run_once()
    assert relay.stats.backlog == 1


def test_the_log_publisher_tells_no_payload(
    outbox: FakeOutbox, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    outbox.append(make_event(payload_json='{"url":"https://receiver.test/?token=s3cret"}'))
    make_relay(outbox, [LogPublisher()], clock).run_once()
    (record,) = [record for record in caplog.records if getattr(record, "action", "") == "service_call.event"]
    (line,) = vars(record)["each"]
    assert line["type"] == "ServiceCallSubmitted"
    assert (line["tenant_id"], line["call_id"], line["sequence"]) == ("acme", "call-1", 1)
    assert "s3cret" not in str(vars(record))


# -- any interleaving ----------------------------------------------------------------------------------------------

_CALLS = ("a", "b", "c")
_STEPS = st.one_of(
    st.tuples(st.just("write"), st.sampled_from(_CALLS)),
    st.tuples(st.just("turn"), st.sampled_from((0, 1))),
    st.tuples(st.just("break"), st.sets(st.sampled_from(_CALLS))),
    st.tuples(st.just("down"), st.booleans()),
    st.tuples(st.just("die"), st.sampled_from((0, 1))),
    st.tuples(st.just("wait"), st.sampled_from((0.1, 1.0, 20.0))),
)


@settings(max_examples=300, deadline=None)
@given(steps=st.lists(_STEPS, max_size=60), batch=st.integers(1, 5))
def test_whatever_happens_order_per_call_holds_and_nothing_is_lost(steps: list[tuple[str, Any]], batch: int) -> None:
    """Several writers, two relays of which either may be killed between publishing and marking."""
    clock, outbox, leases, publisher = FakeClock(), FakeOutbox(), FakeLeases(), RecordingPublisher()
    written = dict.fromkeys(_CALLS, 0)

    def start(owner_id: str) -> OutboxRelay:
        return make_relay(outbox, [publisher], clock, leases=leases, owner_id=owner_id, batch=batch)

    relays = [start("0"), start("1")]
    for step, value in steps:
        if step == "write":
            written[value] += 1
            outbox.append(make_event(value, written[value]))
        elif step == "turn":
            relays[value].run_once()
        elif step == "break":
            publisher.broken_calls = value
        elif step == "down":
            publisher.is_down = value
        elif step == "die":
            outbox.is_marking_down = True  # killed before it marks what it published
            relays[value].run_once()
            outbox.is_marking_down = False
            relays[value] = start(f"{value} again")
        else:
            clock.advance(value)
    publisher.broken_calls, publisher.is_down = set(), False
    for _ in range(100):
        if not outbox.waiting:
            break
        clock.advance(30)
        for relay in relays:
            relay.run_once()
    assert outbox.waiting == []
    for call, number in written.items():
        assert first_occurrences(publisher.sequences(call)) == list(range(1, number + 1))
