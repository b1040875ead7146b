"""A poller that executes service calls, in virtual time, over a real store."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Any

from duetime.calls.executor import CallExecutor
from duetime.calls.message_log import LogRules
from duetime.calls.occurrences import OccurrenceCalls
from duetime.calls.submission import CallNamespaces, Submitter
from duetime.domain.call_events import CallEvent
from duetime.domain.call_steps import CallRules
from duetime.domain.executions import Execution
from duetime.domain.service_calls import CallStatus, ServiceCall, calls_namespace, timer_of
from duetime.domain.shards import Lease
from duetime.engine.firing.execution_handler import Turn
from duetime.engine.poller import Poller
from duetime.engine.settings import EngineSettings
from duetime.engine.waiting import Offload
from duetime.stores.core.calls import CallStore
from duetime.stores.core.store import Store
from duetime.stores.port.calls import ApplyStatus, CallFilter, CallRef
from duetime.testing.contract import call_builders as make
from duetime.testing.contract.steps import claim_shard
from duetime.testing.virtual_time import InlineOffload, VirtualClock, run_virtually
from tests.support.clock import NOW as START
from tests.support.engine import Script, make_poller, running
from tests.support.scripted_sender import RequestSender
from tests.support.sql_store import SqlStore

NUM_SHARDS = 4


@dataclass
class Executing:
    """Make it with a store whose namespaces it may create."""

    store: SqlStore
    clock: VirtualClock
    sender: RequestSender = field(default_factory=RequestSender)
    settings: EngineSettings = field(default_factory=EngineSettings)
    rules: CallRules = field(default_factory=CallRules)
    log_rules: LogRules = field(default_factory=LogRules)
    make_offload: Callable[[int, str], Offload] = InlineOffload
    calls: CallStore = field(init=False)

    def __post_init__(self) -> None:
        self.calls = self.store.calls
        self.add_tenant(make.TENANT)

    def add_tenant(self, tenant_id: str) -> None:
        self.store.catalogue.create_namespace(
            calls_namespace(tenant_id), num_shards=NUM_SHARDS, dedicated=False, now=START, tenant_id=tenant_id
        )

    def executor(self, calls: CallStore | None = None) -> CallExecutor:
        return CallExecutor(
            self.calls if calls is None else calls,
            rules=self.rules,
            log_rules=self.log_rules,
            new_id=lambda: make.id_at(self.clock.now()),
            random=Random(3).random,
        )

    def submission(self, calls: CallStore | None = None) -> OccurrenceCalls:
        """What makes service calls of schedules."""
        calls = self.calls if calls is None else calls
        namespaces = CallNamespaces(self.store.catalogue, num_shards=NUM_SHARDS)
        submitter = Submitter(
            calls, namespaces, new_id=lambda: make.id_at(self.clock.now()), on_stored=lambda _: None
        )
        return OccurrenceCalls(calls, submitter)

    def poller(
        self,
        *,
        worker_id: str = "worker-a",
        sender: RequestSender | None = None,
        calls: CallStore | None = None,
        store: Store | None = None,
    ) -> Poller:
        return make_poller(
            store or self.store,
            sender or self.sender,
            self.clock,
            worker_id=worker_id,
            settings=self.settings,
            make_offload=self.make_offload,
            handler=self.executor(calls),
            submission=self.submission(calls),
            new_id=lambda: make.id_at(self.clock.now()),
        )

    def run(self, script: Script, *pollers: Poller, deadline: float | None = None) -> None:
        """Run ``pollers`` (one of its own, if none are given) while ``script`` runs, then stop them in good order."""

        run_virtually(self.clock, running(pollers or [self.poller()], script, deadline=deadline))

    def run_for(self, seconds: float, *pollers: Poller) -> None:
        self.run(seconds, *pollers)

    def submit(self, call_id: str = "call-1", *, tenant_id: str = make.TENANT, **fields: Any) -> ServiceCall:
        """Submit a call now, as another process would: the poller is not told."""
        now = self.clock.now()
        transition = make.submitted(tenant_id=tenant_id, call_id=call_id, now=now, num_shards=NUM_SHARDS, **fields)
        assert self.calls.apply([transition], now=now) == [ApplyStatus.APPLIED]
        return transition.after

    def get(self, call_id: str = "call-1", *, tenant_id: str = make.TENANT) -> ServiceCall:
        (call,) = self.calls.get([CallRef(tenant_id, call_id)], now=self.clock.now())
        assert call is not None
        return call

    def amend(self, call_id: str = "call-1", **fields: Any) -> ServiceCall:
        transition = make.amended(self.get(call_id), now=self.clock.now(), **fields)
        assert self.calls.apply([transition], now=self.clock.now()) == [ApplyStatus.APPLIED]
        return transition.after

    def executions(self, call_id: str = "call-1", *, tenant_id: str = make.TENANT) -> list[Execution]:
        """The first one first."""
        page = self.calls.list_executions(tenant_id, call_id, cursor=None, limit=100)
        assert page.next_cursor is None
        return page.items[::-1]

    def events(self, call_id: str = "call-1", *, tenant_id: str = make.TENANT) -> list[CallEvent]:
        events = self.calls.list_events(tenant_id, call_id, after=0, limit=1000)
        assert [event.sequence for event in events] == list(range(1, len(events) + 1))
        for before, event in pairwise(events):
            assert event.causation_id == before.event_id
        return events

    def types(self, call_id: str = "call-1") -> list[str]:
        return [str(event.type) for event in self.events(call_id)]

    def statuses(self) -> set[CallStatus]:
        return {call.status for call in self.all()}

    def all(self, *, tenant_id: str = make.TENANT) -> list[ServiceCall]:
        """In the order of their ids, whole."""
        found: list[str] = []
        cursor: str | None = None
        while True:
            page = self.calls.list(tenant_id, CallFilter(), cursor=cursor, limit=500, now=self.clock.now())
            found += [call.call_id for call in page.items]
            cursor = page.next_cursor
            if cursor is None:
                return [self.get(call_id, tenant_id=tenant_id) for call_id in sorted(found)]


def turn(executing: Executing, leases: Mapping[int, Lease], call_id: str = "call-1") -> Turn:
    """The turn of a call's timer as it is stored now."""
    timer = timer_of(executing.get(call_id))
    return Turn(timer, leases[timer.shard_id], make.id_at(executing.clock.now()))


def own_all(executing: Executing) -> dict[int, Lease]:
    """Leases of all shards, for a test that steps a call without a poller."""
    leases = {}
    for shard_id in range(NUM_SHARDS):
        lease = claim_shard(executing.store, shard_id, "me", lease_seconds=1e6, now=executing.clock.now())
        assert lease is not None
        leases[shard_id] = lease
    return leases
