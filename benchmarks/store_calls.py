"""Service calls on SQLite beside timers of the same store, in one run.

    python -m benchmarks.store_calls [--calls 10000] [--stored 0] [--directory DIR]

A call's life is three batches (submitted, begun, concluded), a timer's is two (created, recorded). The ratios are
what to compare between machines. ``--stored`` first stores that many finished calls of another tenant and as many
of the same one. Rates and times are of CPU, so that a shared machine's other work counts little.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.figures import parser, show
from benchmarks.store_sql import batches, create, fired, make_timers, record
from duetime.domain import call_steps
from duetime.domain.call_steps import CallRules, ExecutionResult, Transition
from duetime.domain.executions import LoggedMessage
from duetime.domain.ids import uuid7_at
from duetime.domain.namespaces import Namespace
from duetime.domain.service_calls import CallStatus, Method, Submission, calls_namespace, request_spec
from duetime.stores.core.calls import CallStore
from duetime.stores.core.outbox import Outbox
from duetime.stores.core.store import Store
from duetime.stores.open import open_store
from duetime.stores.port.calls import ApplyStatus, CallFilter, CallOrder, CallRef
from duetime.stores.port.outbox import OutboxEvent
from duetime.testing.contract.steps import claim_shard

NOW = datetime(2030, 1, 1, tzinfo=UTC)
BATCH = 400
ROUNDS = 300
RULES = CallRules(retention_seconds=None)
SENT = LoggedMessage(headers=(("content-type", "application/json"),), body='{"order": 12345}', body_bytes=16)
ANSWER = LoggedMessage(headers=(("content-type", "text/plain"), ("server", "bench")), body="ok", body_bytes=2)
REQUEST = request_spec(
    method=Method.POST,
    url="http://127.0.0.1:9000/run",
    headers_json='{"content-type":"application/json"}',
    body_json='{"order": 12345}',
)
_random_bits = count()


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--calls", type=int, default=10_000)
    options.add_argument("--stored", type=int, default=0)
    options.add_argument("--directory", type=Path, help="where the database is made; default: a temporary one")
    arguments = options.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
        store = open_store(f"sqlite:///{directory}/calls.db")
        store.initialise()
        for tenant_id in ("other", "bench") if arguments.stored else ():
            life(store.calls, tenant_id, arguments.stored, at=NOW - timedelta(days=1))
        timers_per_second = timers(store, arguments.calls)
        compare(store, arguments.calls, timers_per_second)
        reads(store)
        store.close()


def timers(store: Store, number: int) -> dict[str, float]:
    """Rates of the timers' two batches."""
    namespace, _ = store.catalogue.create_namespace("bench", num_shards=16, dedicated=False, now=NOW)
    made = make_timers(namespace, number, "due", NOW)
    leases = {}
    for shard_id in namespace.shard_ids():
        lease = claim_shard(store, shard_id, "bench", lease_seconds=3600, now=NOW)
        assert lease is not None
        leases[shard_id] = lease
    created = number / timed(lambda: create(store, made))
    outcomes = [fired(timer) for timer in made]
    recorded = number / timed(lambda: record(store, outcomes, leases))
    show("timers", created_per_s=created, recorded_per_s=recorded)
    return {"created": created, "recorded": recorded}


def compare(store: Store, number: int, timers_per_second: dict[str, float]) -> None:
    steps = iter(life_steps("bench", number, at=NOW))
    for name, beside in (("submitted", "created"), ("begun", "recorded"), ("concluded", "recorded")):
        transitions = next(steps)
        rate = number / timed(lambda transitions=transitions: apply(store.calls, transitions))  # type: ignore[misc]
        show(f"calls {name}, beside timers {beside}", per_s=rate, ratio=rate / timers_per_second[beside])
    drained: list[OutboxEvent] = []
    seconds = timed(lambda: drain(store.outbox, drained))
    show("events read and marked", per_s=len(drained) / seconds)


def drain(outbox: Outbox, drained: list[OutboxEvent]) -> None:
    while found := outbox.unpublished(limit=200):
        outbox.mark_published(found, now=NOW)
        drained += found


def reads(store: Store) -> None:
    """Single reads; the stored calls are those of the run and what was stored before."""

    def page(**conditions: Any) -> Callable[[], object]:
        wanted = CallFilter(**conditions)
        return lambda: calls.list("bench", wanted, cursor=None, limit=50, now=NOW)

    calls = store.calls
    newest = calls.list("bench", CallFilter(), cursor=None, limit=1, now=NOW).items[0]
    ref = CallRef("bench", newest.call_id)
    actions = {
        "get of one": lambda: calls.get([ref], now=NOW),
        "no unpublished event": lambda: store.outbox.unpublished(limit=200),
        "list of 50": page(),
        "list of 50 by status": page(status=CallStatus.SUCCEEDED),
        "list of 50 by tag": page(tags=("common",)),
        "list of 50 by name": page(name_prefix="bench"),
        "list by due time, empty": page(status=CallStatus.SCHEDULED, order=CallOrder.DUE),
        "list of 50 by tag, 1 of 100 fits": page(tags=("common", "rare")),
    }
    for name, action in actions.items():
        action()
        seconds = timed(lambda action=action: [action() for _ in range(ROUNDS)])  # type: ignore[misc]
        show(name, us_each=seconds * 1e6 / ROUNDS)


def life(calls: CallStore, tenant_id: str, number: int, *, at: datetime) -> None:
    for transitions in life_steps(tenant_id, number, at=at):
        apply(calls, transitions)


def life_steps(tenant_id: str, number: int, *, at: datetime) -> Iterator[list[Transition]]:
    """Yield what the three steps of that many calls write."""
    namespace = Namespace(calls_namespace(tenant_id), num_shards=16, first_shard=0, dedicated=False, created_at=at)
    submitted = [
        call_steps.submitted(tenant_id, new_id(at), submission(index), namespace=namespace, new_id=ids(at), now=at)
        for index in range(number)
    ]
    yield submitted
    begun = [
        call_steps.begun(
            each.after, url=REQUEST.url, sent=SENT, execution_id=new_id(at), new_id=ids(at), now=at, rules=RULES
        )
        for each in submitted
    ]
    yield begun
    result = ExecutionResult(response_status=200, response=ANSWER, duration_ms=3)
    yield [
        call_steps.concluded(each.after, each.executions[0], result, new_id=ids(at), now=at, rules=RULES, random=0.5)
        for each in begun
    ]


def submission(index: int) -> Submission:
    plain = Submission(
        name=f"bench {index % 100}",
        request=REQUEST,
        digest="0" * 32,
        due_at=None,
        timeout_seconds=30,
        retry_policy_json=None,
        correlation_id=f"correlation-{index}",
        tags=("common", "rare") if index % 100 == 0 else ("common",),
    )
    return plain if index % 2 else replace(plain, idempotency_key=new_id(NOW))


def new_id(at: datetime) -> str:
    # Spread over an hour, as the ids of many submissions are.
    number = next(_random_bits)
    return uuid7_at(at + timedelta(milliseconds=number % 3_600_000), number)


def ids(at: datetime) -> Callable[[], str]:
    return lambda: new_id(at)


def apply(calls: CallStore, transitions: Sequence[Transition]) -> None:
    for batch in batches(transitions, BATCH):
        assert set(calls.apply(batch, now=NOW)) == {ApplyStatus.APPLIED}


def timed(action: Callable[[], object]) -> float:
    """Seconds of CPU."""
    start = time.process_time()
    action()
    return time.process_time() - start


if __name__ == "__main__":
    main()
