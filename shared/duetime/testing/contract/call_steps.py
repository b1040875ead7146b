"""Steps that many tests of the call store take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from duetime.domain.call_steps import Transition
from duetime.domain.executions import Execution
from duetime.domain.service_calls import ServiceCall, timer_of
from duetime.domain.shards import Lease
from duetime.domain.timers import Timer
from duetime.stores.core.calls import CallStore
from duetime.stores.core.store import Store
from duetime.stores.port.calls import ApplyStatus, CallRef
from duetime.testing.contract import call_builders as make
from duetime.testing.contract.builders import NOW, lease_among, seconds


def apply(
    calls: CallStore, *transitions: Transition, now: datetime = NOW, leases: Sequence[Lease] | None = None
) -> list[ApplyStatus]:
    """With ``leases`` as the engine does it: each under the one of its shard, or under nobody's."""
    if leases is not None:
        transitions = tuple(replace(each, lease=lease_among(leases, each.after.shard_id)) for each in transitions)
    return calls.apply(transitions, now=now)


def applied(calls: CallStore, *transitions: Transition, now: datetime = NOW) -> ServiceCall:
    """Apply what must succeed; the last call as it is now."""
    assert apply(calls, *transitions, now=now) == [ApplyStatus.APPLIED] * len(transitions)
    return transitions[-1].after


def submit(calls: CallStore, *, now: datetime = NOW, **fields: Any) -> ServiceCall:
    """Submit a call; ``fields`` as for ``call_builders.submitted``."""
    return applied(calls, make.submitted(now=now, **fields), now=now)


def begin(calls: CallStore, call: ServiceCall, *, now: datetime = NOW) -> ServiceCall:
    return applied(calls, make.begun(call, now=now), now=now)


def conclude(
    calls: CallStore, call: ServiceCall, *, is_ok: bool = True, now: datetime = NOW, **fields: Any
) -> ServiceCall:
    return applied(calls, make.concluded(call, execution_of(calls, call), is_ok=is_ok, now=now, **fields), now=now)


def run(calls: CallStore, call: ServiceCall, *, is_ok: bool = True, now: datetime = NOW) -> ServiceCall:
    """Run one execution from its begin to its end."""
    return conclude(calls, begin(calls, call, now=now), is_ok=is_ok, now=now)


def execution_of(calls: CallStore, call: ServiceCall) -> Execution:
    """Return the open execution."""
    assert call.execution_id is not None
    execution = calls.get_execution(call.tenant_id, call.call_id, call.execution_id)
    assert execution is not None
    return execution


def ref(call: ServiceCall) -> CallRef:
    return CallRef(call.tenant_id, call.call_id)


def got(calls: CallStore, call: ServiceCall, *, now: datetime = NOW) -> ServiceCall | None:
    (found,) = calls.get([ref(call)], now=now)
    return found


def due_timers(store: Store, call: ServiceCall, *, until: datetime) -> list[Timer]:
    """Return what a poller of the call's shard finds of it."""
    page = store.timers.due(call.shard_id, until=until, limit=100)
    assert page.unreadable == ()
    return [timer for timer in page.timers if (timer.namespace, timer.timer_id) == (call.namespace, call.call_id)]


def assert_waits(store: Store, call: ServiceCall) -> None:
    """Assert that the call's timer is due at its wake time, not before, and is as the call says."""
    assert call.wake_at is not None
    assert due_timers(store, call, until=call.wake_at) == [timer_of(call)]
    before = call.wake_at - seconds(0.001)
    assert due_timers(store, call, until=before) == []
