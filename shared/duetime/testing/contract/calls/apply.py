"""CallStore.apply: the life of a call, its conditions, and the timer that is written with it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from duetime.domain.call_events import CallEventType
from duetime.domain.executions import ExecutionStatus, LoggedMessage
from duetime.domain.service_calls import CallFailure, CallOutcome, CallStatus, Method, ServiceCall, request_spec
from duetime.stores.core.calls import CallStore
from duetime.stores.core.store import Store
from duetime.stores.port.calls import ApplyStatus, CallFilter, CallRef
from duetime.testing.contract import call_builders as make
from duetime.testing.contract import call_steps as steps
from duetime.testing.contract.builders import NOW, UNSTORABLE, seconds
from duetime.testing.contract.steps import claim

LATER = NOW + seconds(60)


def events_of(calls: CallStore, call: ServiceCall) -> list[CallEventType]:
    events = calls.list_events(call.tenant_id, call.call_id, after=0, limit=100)
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert len(events) == call.event_count
    return [event.type for event in events]


# -- a call's life ------------------------------------------------------------------------------------------------


def test_nothing_to_apply(calls: CallStore) -> None:
    assert calls.apply([], now=NOW) == []


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"due_at": LATER},
        {"tags": ("b", "a", 'ü "quoted"'), "name": "naïve 😀", "idempotency_key": "k-1"},
        {"headers_json": None, "body_json": None, "method": Method.GET},
        {"headers_json": '{"A": "1",  "b": "2"}', "body_json": '{"n": 1.10, "s": "\\u0000"}'},
        {"body_json": '"' + "x" * 100_000 + '"'},
        {"retry_policy_json": make.RETRIED, "timeout_seconds": 900, "rerun_of": make.id_at(NOW)},
    ],
)
def test_what_was_submitted_is_read_back(calls: CallStore, fields: dict[str, Any]) -> None:
    call = steps.submit(calls, **fields)

    assert steps.got(calls, call) == call
    assert events_of(calls, call) == [CallEventType.SUBMITTED, CallEventType.SCHEDULED]


def test_the_life_of_a_call_that_succeeds(store: Store, calls: CallStore) -> None:
    call = steps.submit(calls, due_at=LATER)
    steps.assert_waits(store, call)
    assert call.wake_at == LATER

    running = steps.begin(calls, call, now=LATER)
    assert steps.got(calls, call) == running
    assert running.status is CallStatus.RUNNING
    assert running.reached_at == LATER
    steps.assert_waits(store, running)  # for the watchdog
    assert steps.execution_of(calls, running).status is ExecutionStatus.RUNNING

    done = steps.conclude(calls, running, now=LATER + seconds(1))
    assert steps.got(calls, call) == done
    assert done.status is CallStatus.SUCCEEDED
    assert steps.due_timers(store, call, until=NOW + seconds(86_400)) == []
    assert events_of(calls, done) == [
        CallEventType.SUBMITTED,
        CallEventType.SCHEDULED,
        CallEventType.DUE_TIME_REACHED,
        CallEventType.RUNNING,
        CallEventType.EXECUTION_STARTED,
        CallEventType.EXECUTION_SUCCEEDED,
        CallEventType.SUCCEEDED,
    ]


# Also what some databases read in their own way where values are written into statements.
TEXT = 'it\'s a \\\n continued \\\r\n "line" %s %(a)s :b ? \\'


@pytest.mark.parametrize(
    "message",
    [
        LoggedMessage(),
        LoggedMessage(headers=(("a", "1"), ("a", "2"), ("b", "ü")), body="", body_bytes=0),
        LoggedMessage(body="AP8=", body_bytes=2, body_is_base64=True),
        LoggedMessage(body=TEXT, body_bytes=100_000, is_truncated=True),
    ],
    ids=["nothing", "headers", "bytes", "text"],
)
def test_what_was_sent_and_answered_is_read_back(calls: CallStore, message: LoggedMessage) -> None:
    running = steps.begin(calls, steps.submit(calls))
    concluded = make.concluded(running, steps.execution_of(calls, running))
    (execution,) = [
        replace(each, request=message, response=message, response_status=299, message=TEXT)
        for each in concluded.executions
    ]

    steps.applied(calls, replace(concluded, executions=(execution,)))

    stored = calls.get_execution(execution.tenant_id, execution.call_id, execution.execution_id)
    assert stored == execution


def test_a_call_that_will_be_tried_again_waits_for_it(store: Store, calls: CallStore) -> None:
    call = steps.submit(calls, retry_policy_json=make.RETRIED)
    waiting = steps.run(calls, call, is_ok=False)
    assert waiting.status is CallStatus.RUNNING
    assert waiting.wake_at is not None
    assert waiting.wake_at > NOW
    steps.assert_waits(store, waiting)

    again = steps.run(calls, waiting, is_ok=True, now=waiting.wake_at)

    assert steps.got(calls, call) == again
    assert (again.status, again.attempts) == (CallStatus.SUCCEEDED, 2)
    executions = calls.list_executions(call.tenant_id, call.call_id, cursor=None, limit=10).items
    assert [(each.number, each.status) for each in executions] == [
        (2, ExecutionStatus.SUCCEEDED),
        (1, ExecutionStatus.FAILED),
    ]


def test_a_changed_due_time_moves_the_timer(store: Store, calls: CallStore) -> None:
    call = steps.submit(calls, due_at=LATER)

    earlier = steps.applied(calls, make.amended(call, due_at=NOW + seconds(5), now=NOW + seconds(1)))

    steps.assert_waits(store, earlier)
    assert len(steps.due_timers(store, call, until=LATER)) == 1
    assert events_of(calls, earlier)[-1] is CallEventType.SCHEDULED


def test_a_running_call_may_be_starred_and_tagged(store: Store, calls: CallStore) -> None:
    running = steps.begin(calls, steps.submit(calls, tags=("a", "b")))

    starred = steps.applied(calls, make.amended(running, starred=True, tags=("b", "c"), name="other"))

    assert steps.got(calls, running) == starred
    steps.assert_waits(store, starred)
    assert steps.conclude(calls, starred).expires_at is None


def test_a_changed_request_is_stored(calls: CallStore) -> None:
    call = steps.submit(calls, due_at=LATER)
    request = request_spec(method=Method.PUT, url="http://other.test/", headers_json=None, body_json="[2]")

    changed = steps.applied(calls, make.amended(call, request=request))

    assert steps.got(calls, call) == changed


def test_whatever_a_step_changes_is_stored(calls: CallStore) -> None:
    call = steps.submit(calls, due_at=LATER, tags=("a",))
    step = make.amended(call)
    changed = replace(
        step.after,
        name="other",
        starred=True,
        due_at=LATER + seconds(1),
        wake_at=LATER + seconds(1),
        registered_at=LATER,
        timeout_seconds=7,
        digest="0",
        rerun_of="r",
        tags=("z",),
        retry_policy_json="{}",
        outcome=CallOutcome(execution_id="e", reason=CallFailure.NETWORK, message='no "route" ü'),
    )

    steps.applied(calls, replace(step, after=changed))

    assert steps.got(calls, call) == changed


def test_a_request_that_a_step_does_not_change_keeps_its_body(calls: CallStore) -> None:
    call = steps.submit(calls)
    listed = replace(call, request=call.request.without_body())

    starred = steps.applied(calls, make.amended(listed, starred=True))

    assert steps.got(calls, call) == replace(starred, request=call.request)


def test_who_publishes_events_is_told_once_of_what_was_written(calls: CallStore) -> None:
    told: list[str] = []
    calls.on_events.append(lambda: told.append("events"))
    call = steps.submit(calls)
    late = make.begun(call)
    assert told == ["events"]
    steps.applied(calls, make.begun(call), make.submitted(call_id=make.id_at(LATER)))
    assert told == ["events"] * 2
    assert steps.apply(calls, late) == [ApplyStatus.SUPERSEDED]
    assert told == ["events"] * 2


# -- conditions ---------------------------------------------------------------------------------------------------


def test_a_step_from_another_revision_changes_nothing(store: Store, calls: CallStore) -> None:
    call = steps.submit(calls, tags=("a",))
    stale = make.amended(call, due_at=LATER, tags=("b",), name="stale")
    running = steps.begin(calls, call)
    started = steps.execution_of(calls, running)

    assert steps.apply(calls, stale) == [ApplyStatus.SUPERSEDED]
    assert steps.apply(calls, make.begun(call)) == [ApplyStatus.SUPERSEDED]

    assert steps.got(calls, call) == running
    assert calls.list_executions(call.tenant_id, call.call_id, cursor=None, limit=5).items == [started]
    assert len(events_of(calls, running)) == 5
    steps.assert_waits(store, running)


@pytest.mark.parametrize("is_between", [False, True])
def test_a_cancelled_call_is_kept_and_never_due(store: Store, calls: CallStore, is_between: bool) -> None:
    call = steps.submit(calls, retry_policy_json=make.RETRIED, tags=("a",), due_at=LATER)
    if is_between:
        call = steps.run(calls, call, is_ok=False)
    cancelled = steps.applied(calls, make.cancelled(call))

    assert cancelled.status is CallStatus.CANCELLED
    assert steps.got(calls, call) == cancelled
    assert steps.due_timers(store, call, until=NOW + seconds(100_000)) == []
    assert steps.apply(calls, make.begun(call)) == [ApplyStatus.SUPERSEDED]
    for call_filter in (CallFilter(status=CallStatus.CANCELLED), CallFilter(tags=("a",))):
        found = calls.list(make.TENANT, call_filter, cursor=None, limit=9, now=NOW).items
        assert [each.call_id for each in found] == [call.call_id]
    assert steps.got(calls, call, now=NOW + make.RETENTION) is None


def test_between_two_attempts_a_due_time_and_a_request_are_changed(store: Store, calls: CallStore) -> None:
    call = steps.run(calls, steps.submit(calls, retry_policy_json=make.RETRIED), is_ok=False)
    moved = steps.applied(calls, make.amended(call, due_at=LATER, request=replace(call.request, url="http://b/")))

    assert steps.got(calls, call) == moved
    steps.assert_waits(store, moved)
    assert steps.run(calls, moved, now=LATER).status is CallStatus.SUCCEEDED


def test_a_step_of_a_call_that_is_gone_changes_nothing(store: Store, calls: CallStore) -> None:
    call = steps.submit(calls)
    calls.delete(call.tenant_id, call.call_id, now=NOW)

    assert steps.apply(calls, make.begun(call)) == [ApplyStatus.SUPERSEDED]
    assert steps.apply(calls, make.begun(make.submitted().after)) == [ApplyStatus.SUPERSEDED]

    assert steps.got(calls, call) is None
    assert steps.due_timers(store, call, until=LATER) == []
    assert calls.list_executions(call.tenant_id, call.call_id, cursor=None, limit=5).items == []


def test_an_id_is_taken_once(store: Store, calls: CallStore) -> None:
    call = steps.submit(calls, name="first", due_at=LATER)

    assert steps.apply(calls, make.submitted(call_id=call.call_id, name="second")) == [ApplyStatus.EXISTS]

    assert steps.got(calls, call) == call
    steps.assert_waits(store, call)
    assert len(events_of(calls, call)) == 2


def test_an_idempotency_key_is_taken_once(store: Store, calls: CallStore) -> None:
    call = steps.submit(calls, idempotency_key="k", tags=("a",))
    second = make.submitted(idempotency_key="k", tags=("a",))

    assert steps.apply(calls, second) == [ApplyStatus.EXISTS]

    assert steps.got(calls, second.after) is None
    assert steps.due_timers(store, second.after, until=LATER) == []
    steps.assert_waits(store, call)
    assert calls.find_by_idempotency_key(call.tenant_id, "k", now=NOW) == call
    assert calls.list_events(call.tenant_id, second.after.call_id, after=0, limit=5) == []


def test_the_key_stays_taken_when_the_call_changes(calls: CallStore) -> None:
    call = steps.run(calls, steps.submit(calls, idempotency_key="k"))

    assert steps.apply(calls, make.submitted(idempotency_key="k")) == [ApplyStatus.EXISTS]
    assert calls.find_by_idempotency_key(call.tenant_id, "k", now=NOW) == call
    assert calls.find_by_idempotency_key(call.tenant_id, "other", now=NOW) is None


def test_a_deleted_calls_key_is_free(calls: CallStore) -> None:
    call = steps.submit(calls, idempotency_key="k")
    calls.delete(call.tenant_id, call.call_id, now=NOW)

    assert calls.find_by_idempotency_key(call.tenant_id, "k", now=NOW) is None
    second = steps.submit(calls, idempotency_key="k")
    assert calls.find_by_idempotency_key(call.tenant_id, "k", now=NOW) == second


def test_an_expired_calls_key_is_free(store: Store, calls: CallStore) -> None:
    call = steps.run(calls, steps.submit(calls, idempotency_key="k"))
    end = NOW + make.RETENTION
    assert call.expires_at == end
    assert steps.apply(calls, make.submitted(idempotency_key="k"), now=end - seconds(0.001)) == [ApplyStatus.EXISTS]

    assert calls.find_by_idempotency_key(call.tenant_id, "k", now=end) is None
    second = steps.submit(calls, idempotency_key="k", now=end)

    assert calls.find_by_idempotency_key(call.tenant_id, "k", now=end) == second
    assert steps.got(calls, call, now=end) is None
    steps.assert_waits(store, second)


# -- batches ------------------------------------------------------------------------------------------------------


def test_each_of_a_batch_succeeds_or_fails_alone(store: Store, calls: CallStore) -> None:
    stale, running, fresh, taken = (steps.submit(calls, idempotency_key=f"k{index}") for index in range(4))
    running = steps.begin(calls, running)
    steps.begin(calls, stale)
    gone = make.submitted().after
    new = make.submitted(tags=("new",), due_at=LATER)
    batch = [
        make.begun(stale),
        make.concluded(running, steps.execution_of(calls, running)),
        make.submitted(call_id=taken.call_id),
        make.begun(fresh),
        make.begun(gone),
        make.submitted(idempotency_key="k3"),
        new,
    ]

    statuses = steps.apply(calls, *batch)

    assert statuses == [
        ApplyStatus.SUPERSEDED,
        ApplyStatus.APPLIED,
        ApplyStatus.EXISTS,
        ApplyStatus.APPLIED,
        ApplyStatus.SUPERSEDED,
        ApplyStatus.EXISTS,
        ApplyStatus.APPLIED,
    ]
    for transition, status in zip(batch, statuses, strict=True):
        is_stored = steps.got(calls, transition.after) == transition.after
        assert is_stored == (status is ApplyStatus.APPLIED)
    assert events_of(calls, batch[1].after)[-1] is CallEventType.SUCCEEDED
    steps.assert_waits(store, new.after)
    steps.assert_waits(store, batch[3].after)


def test_one_key_twice_in_a_batch_is_taken_once(calls: CallStore) -> None:
    first, second = make.submitted(idempotency_key="k"), make.submitted(idempotency_key="k")

    statuses = steps.apply(calls, first, second)

    assert sorted(statuses) == [ApplyStatus.APPLIED, ApplyStatus.EXISTS]
    winner = first if statuses[0] is ApplyStatus.APPLIED else second
    assert calls.find_by_idempotency_key(make.TENANT, "k", now=NOW) == winner.after
    found = calls.get([steps.ref(first.after), steps.ref(second.after)], now=NOW)
    assert [call is not None for call in found] == [status is ApplyStatus.APPLIED for status in statuses]


def test_a_large_batch(calls: CallStore) -> None:
    batch = [make.submitted(idempotency_key=f"k{index}", tags=(f"t{index % 3}",)) for index in range(60)]

    assert set(steps.apply(calls, *batch)) == {ApplyStatus.APPLIED}
    begun = [make.begun(transition.after) for transition in batch]
    assert set(steps.apply(calls, *begun)) == {ApplyStatus.APPLIED}

    refs = [steps.ref(transition.after) for transition in reversed(begun)]
    assert calls.get(refs, now=NOW) == [transition.after for transition in reversed(begun)]


# -- leases -------------------------------------------------------------------------------------------------------


def test_with_a_good_lease_the_engine_applies(store: Store, calls: CallStore) -> None:
    call = steps.submit(calls)
    lease = claim(store, call.shard_id)

    assert steps.apply(calls, make.begun(call), leases=[lease]) == [ApplyStatus.APPLIED]


def test_without_its_lease_the_engine_begins_nothing(fencing: Store, calls: CallStore) -> None:
    call = steps.submit(calls)
    stale = claim(fencing, call.shard_id)
    other = next(shard for shard in range(4) if shard != call.shard_id)
    held = claim(fencing, other)
    neighbour = next(transition for transition in iter(make.submitted, None) if transition.after.shard_id == other)
    steps.applied(calls, neighbour)
    claim(fencing, call.shard_id, "w2", now=NOW + seconds(11))

    statuses = steps.apply(calls, make.begun(call), make.begun(neighbour.after), leases=[stale, held])

    assert statuses == [ApplyStatus.LEASE_LOST, ApplyStatus.APPLIED]
    assert steps.got(calls, call) == call
    steps.assert_waits(fencing, call)
    assert steps.apply(calls, make.begun(call), leases=[]) == [ApplyStatus.LEASE_LOST]


def test_calls_of_one_shard_are_judged_by_their_own_leases(fencing: Store, calls: CallStore) -> None:
    call = steps.submit(calls)
    neighbour = next(each for each in iter(make.submitted, None) if each.after.shard_id == call.shard_id)
    steps.applied(calls, neighbour)
    former = claim(fencing, call.shard_id)
    fencing.leases.release([former], now=NOW)
    current = claim(fencing, call.shard_id)
    begun = [replace(make.begun(call), lease=former), replace(make.begun(neighbour.after), lease=current)]

    assert steps.apply(calls, *begun) == [ApplyStatus.LEASE_LOST, ApplyStatus.APPLIED]
    assert steps.apply(calls, *reversed(begun)) == [ApplyStatus.SUPERSEDED, ApplyStatus.LEASE_LOST]
    assert steps.got(calls, call) == call


def test_the_end_of_an_execution_is_stored_whoever_owns_the_shard(store: Store, calls: CallStore) -> None:
    running = steps.begin(calls, steps.submit(calls))
    stale = claim(store, running.shard_id)
    claim(store, running.shard_id, "w2", now=NOW + seconds(11))
    ended = make.concluded(running, steps.execution_of(calls, running))

    assert steps.apply(calls, ended, leases=[stale]) == [ApplyStatus.APPLIED]
    assert steps.got(calls, running) == ended.after


def test_calls_are_read_in_the_order_that_was_asked_for(calls: CallStore) -> None:
    one, two = steps.submit(calls), steps.submit(calls)
    nobody = CallRef(make.TENANT, make.id_at(NOW))

    found = calls.get([steps.ref(two), nobody, steps.ref(one), steps.ref(two)], now=NOW)

    assert found == [two, None, one, two]
    assert calls.get([], now=NOW) == []


@pytest.mark.parametrize("text", UNSTORABLE.values(), ids=UNSTORABLE)
def test_a_key_that_cannot_be_stored_is_not_found_and_hides_no_other(calls: CallStore, text: str) -> None:
    call = steps.submit(calls)

    found = calls.get([CallRef(make.TENANT, text), steps.ref(call), CallRef(text, call.call_id)], now=NOW)

    assert found == [None, call, None]
