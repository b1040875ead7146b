"""Service calls on Cassandra, with every request of every operation lost once: before it is carried out,
after it, for long in flight, or, for lightweight transactions, accepted and not committed. The process that asks gets
no further answer, or goes on. Then another process takes over, hours later, and all has to be whole."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

import pytest

from duetime.domain.call_steps import Transition
from duetime.domain.errors import StoreUnavailable
from duetime.domain.service_calls import CallStatus, ServiceCall, timer_of
from duetime.domain.timers import Timer
from duetime.stores.backends.cassandra.layout import Way, places_on, way_of
from duetime.stores.core.call_codec import encode_call
from duetime.stores.core.timer_codec import encode
from duetime.stores.entities import DUE, EXPIRED_CALLS, PUBLISHED, SERVICE_CALL, TIMER
from duetime.stores.port.calls import ApplyStatus, CallFilter, CallOrder, CallRef, DeleteStatus
from duetime.testing.contract import call_builders as make
from duetime.testing.contract import call_steps as steps
from duetime.testing.contract.builders import seconds
from tests.support.cassandra_calls import FailAt, OpenedCalls, World, world
from tests.support.cassandra_faults import Fault, no_faults
from tests.support.clock import NOW

pytestmark = [pytest.mark.repeated, pytest.mark.timeout(600)]

FAULTS = (Fault.LOST_BEFORE, Fault.LOST_AFTER, Fault.UNFINISHED, Fault.LATE)
DAY = timedelta(days=1)
LATER = NOW + seconds(60)


Prepare = Callable[[OpenedCalls], ServiceCall | None]


@dataclass(frozen=True)
class Case:
    """``prepare`` gives the call before the operation; ``operate`` is what is cut short."""

    name: str
    prepare: Prepare
    operate: Callable[[OpenedCalls, ServiceCall | None], object]


def apply(calls: OpenedCalls, transition: Transition) -> ApplyStatus:
    return calls.apply([transition], now=NOW)[0]


def scheduled(calls: OpenedCalls) -> ServiceCall:
    return steps.submit(calls, tags=("a", "b"), idempotency_key="k", due_at=LATER, retry_policy_json=make.RETRIED)


def running(calls: OpenedCalls) -> ServiceCall:
    return steps.begin(calls, scheduled(calls))


def finished(calls: OpenedCalls) -> ServiceCall:
    return steps.conclude(calls, running(calls))


def submit(calls: OpenedCalls, _: ServiceCall | None) -> ApplyStatus:
    return apply(calls, make.submitted(tags=("a", "b"), idempotency_key="k", due_at=LATER, starred=True))


def begin(calls: OpenedCalls, call: ServiceCall | None) -> ApplyStatus:
    assert call is not None
    return apply(calls, make.begun(call))


def conclude(calls: OpenedCalls, call: ServiceCall | None, *, is_ok: bool = True) -> ApplyStatus:
    assert call is not None
    return apply(calls, make.concluded(call, steps.execution_of(calls, call), is_ok=is_ok))


def amend(calls: OpenedCalls, call: ServiceCall | None) -> ApplyStatus:
    assert call is not None
    due_at = NOW + seconds(5)
    return apply(calls, make.amended(call, tags=("b", "c"), name="other", starred=True, due_at=due_at))


def star(calls: OpenedCalls, call: ServiceCall | None) -> ApplyStatus:
    assert call is not None
    return apply(calls, make.amended(call, starred=True))


def delete(calls: OpenedCalls, call: ServiceCall | None) -> DeleteStatus:
    assert call is not None
    return calls.delete(call.tenant_id, call.call_id, now=NOW)


def publish(calls: OpenedCalls, _: ServiceCall | None) -> None:
    calls.outbox.mark_published(calls.outbox.unpublished(limit=3), now=NOW)


def prune(calls: OpenedCalls, _: ServiceCall | None) -> None:
    calls.prune(now=NOW + make.RETENTION, events_published_before=NOW, limit=10)


CASES = [
    Case("submit", lambda calls: None, submit),
    Case("begin", scheduled, begin),
    Case("conclude", running, conclude),
    Case("fail and wait", running, lambda calls, call: conclude(calls, call, is_ok=False)),
    Case("amend", scheduled, amend),
    Case("star", finished, star),
    Case("delete", scheduled, delete),
    Case("delete a finished one", finished, delete),
    Case("publish", finished, publish),
    Case("prune", finished, prune),
]


WAYS = [*((fault, True) for fault in FAULTS), (Fault.LOST_AFTER, False)]


@pytest.mark.parametrize(
    ("fault", "is_dead"), WAYS, ids=[f"{fault.name}-{'dead' if is_dead else 'alive'}" for fault, is_dead in WAYS]
)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_whatever_request_is_lost_another_process_goes_on(case: Case, fault: Fault, is_dead: bool) -> None:
    for number in range(1, 60):
        with world() as cassandra:
            plan = cut_short(cassandra, case, FailAt(number, fault, is_dead=is_dead))
            check(cassandra, marked=3 if case.operate is publish else 0)
        if not plan.has_failed:
            assert number > 3
            return
    raise AssertionError("the operation does not end")


def cut_short(cassandra: World, case: Case, plan: FailAt) -> FailAt:
    call = case.prepare(cassandra.open())
    calls = cassandra.open()
    cassandra.network.faults = plan
    with suppress(StoreUnavailable):
        result = case.operate(calls, call)
        assert result in (None, ApplyStatus.APPLIED, DeleteStatus.DELETED)
    cassandra.network.faults = no_faults
    cassandra.now_s += 3600
    return plan


# -- the process that goes on ---------------------------------------------------------------------------------------


def check(cassandra: World, *, marked: int) -> None:
    """``marked``: how many events may have been marked before the other process began."""
    calls = cassandra.open()
    woken = {timer.timer_id for timer in due(calls)}
    settle(calls, cassandra)
    found = due(calls)
    stored = listed(calls)
    # Whatever an open transaction has in store, the poller finds the call before anybody else has looked at it.
    assert woken >= {each.call_id for each in stored if each.wake_at is not None}
    assert len(stored) <= 1
    call = stored[0] if stored else None
    assert [timer.timer_id for timer in found] == [each.call_id for each in stored if each.wake_at is not None]
    if call is not None:
        check_call(calls, call, found)
    check_key(cassandra, calls, call)
    stored = listed(calls)
    while timers := due(calls):
        for timer in timers:
            work(calls, timer)
    done = listed(calls)
    assert [each.call_id for each in done] == [each.call_id for each in stored]
    assert all(each.status.is_finished for each in done)
    check_events(calls, done, marked=marked)
    cassandra.now_s += 3600
    walk_everything(calls)
    check_indexes(cassandra, done)
    cassandra.network.deliver_late()
    assert [each for each in listed(calls) if each.wake_at is not None] == []
    check_events(calls, listed(calls), marked=len(listed(calls)) * 100)


def settle(calls: OpenedCalls, cassandra: World) -> None:
    """Transactions that were accepted and not committed come to their end, as with whoever changes the call next."""
    cassandra.network.finish()
    for row in cassandra.execute("SELECT DISTINCT tenant_id, service_call_id FROM ks.service_calls"):
        calls.delete(row["tenant_id"], row["service_call_id"], now=NOW, if_revision=-1)


def due(calls: OpenedCalls) -> list[Timer]:
    return [timer for shard in range(4) for timer in calls.timers.due(shard, until=NOW + DAY, limit=10).timers]


def listed(calls: OpenedCalls) -> list[ServiceCall]:
    found = calls.list(make.TENANT, CallFilter(), cursor=None, limit=10, now=NOW).items
    whole = calls.get([CallRef(call.tenant_id, call.call_id) for call in found], now=NOW)
    return [call for call in whole if call is not None]


def check_call(calls: OpenedCalls, call: ServiceCall, timers: list[Timer]) -> None:
    """It wakes up when it says, its events and its execution are those of its state, and lists agree."""
    assert timers == ([] if call.wake_at is None else [timer_of(call)])
    events = calls.list_events(call.tenant_id, call.call_id, after=0, limit=100)
    assert [event.sequence for event in events] == list(range(1, call.event_count + 1))
    assert events[-1].event_id == call.last_event_id
    executions = calls.list_executions(call.tenant_id, call.call_id, cursor=None, limit=9).items
    assert len(executions) == call.attempts
    for wanted in filters():
        found = calls.list(make.TENANT, wanted, cursor=None, limit=10, now=NOW).items
        is_wanted = (
            (wanted.status in (None, call.status))
            and set(wanted.tags) <= set(call.tags)
            and (wanted.starred is None or call.starred)
            and (wanted.name_prefix is None or call.name.startswith(wanted.name_prefix))
            and (wanted.correlation_id in (None, call.correlation_id))
        )
        assert len(found) == is_wanted, wanted


def filters() -> list[CallFilter]:
    return [
        CallFilter(),
        *(CallFilter(status=status) for status in CallStatus),
        *(CallFilter(tags=(tag,)) for tag in "abc"),
        CallFilter(starred=True),
        CallFilter(correlation_id="corr-1"),
        CallFilter(name_prefix="report"),
        CallFilter(name_prefix="other"),
        CallFilter(status=CallStatus.SCHEDULED, order=CallOrder.DUE),
    ]


def check_key(cassandra: World, calls: OpenedCalls, call: ServiceCall | None) -> None:
    """The key belongs to the call that is there, else it is free: one of several submissions has it."""
    found = calls.find_by_idempotency_key(make.TENANT, "k", now=NOW)
    if call is not None:
        assert found == call
        assert apply(calls, make.submitted(idempotency_key="k")) is ApplyStatus.EXISTS
        return
    assert found is None
    again = make.submitted(idempotency_key="k", retry_policy_json=make.RETRIED)
    assert apply(calls, again) is ApplyStatus.APPLIED
    assert calls.find_by_idempotency_key(make.TENANT, "k", now=NOW) == again.after


def work(calls: OpenedCalls, timer: Timer) -> None:
    """The next step of a call that has woken up."""
    (call,) = calls.get([CallRef(make.TENANT, timer.timer_id)], now=NOW)
    assert call is not None
    assert call.wake_at == timer.next_attempt_at
    if call.execution_id is None:
        assert apply(calls, make.begun(call)) is ApplyStatus.APPLIED
    else:
        assert conclude(calls, call) is ApplyStatus.APPLIED


def check_events(calls: OpenedCalls, stored: list[ServiceCall], *, marked: int) -> None:
    """Each event of each call that is there is handed out in order, and none again that is marked."""
    seen: dict[str, list[int]] = {}
    for _ in range(50):
        page = calls.outbox.unpublished(limit=2)
        if not page:
            break
        for each in page:
            seen.setdefault(each.event.aggregate_id, []).append(each.event.sequence)
        calls.outbox.mark_published(page, now=NOW)
    else:
        raise AssertionError("the outbox does not become empty")
    for call in stored:
        numbers = seen.get(call.call_id, [])
        first = numbers[0] if numbers else call.event_count + 1
        assert first <= 1 + marked
        assert numbers == list(range(first, call.event_count + 1))
        events = calls.list_events(call.tenant_id, call.call_id, after=0, limit=100)
        assert [event.sequence for event in events] == list(range(1, call.event_count + 1))


def walk_everything(calls: OpenedCalls) -> None:
    """Whoever reads an index clears away what is wrong in it."""
    due(calls)
    for wanted in filters():
        calls.list(make.TENANT, wanted, cursor=None, limit=10, now=NOW)
    calls.outbox.unpublished(limit=10)
    calls.prune(now=NOW, events_published_before=NOW, limit=10)


def check_indexes(cassandra: World, stored: list[ServiceCall]) -> None:
    """Nothing is left of what was cut short, but for removals that are not due yet."""
    right = {each for call in stored for each in hints_of(call)}
    removals = {EXPIRED_CALLS.name, PUBLISHED.name}
    found = {(row["path"], row["by_values"], row["place"]) for row in cassandra.rows("hints")}
    assert {each for each in found if each[0] not in removals} <= right


def hints_of(call: ServiceCall) -> set[tuple[str, bytes, bytes]]:
    """Those that lead to a call, and the one by which its timer is due."""
    row = dict(zip(SERVICE_CALL.names, encode_call(call), strict=True))
    timer = dict(zip(TIMER.names, encode(timer_of(call)), strict=True))
    paths = [path for path in SERVICE_CALL.paths if way_of(SERVICE_CALL, path) is Way.HINTS]
    found = [(path, places_on(SERVICE_CALL, path, row, has_hints=True)) for path in paths]
    found.append((DUE, places_on(TIMER, DUE, timer, has_hints=True)))
    return {(path.name, by, place) for path, places in found for by, place in places}
