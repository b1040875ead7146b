"""Requests and write units of a service call's life on DynamoDB, counted from the emulator's answers.

    python -m benchmarks.dynamodb_calls_capacity [--calls 20]

The emulator charges transactions as the service does: two units per KB begun and item, one per entry of an index
(tests/support/capacity.py says where it deviates).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from benchmarks.figures import parser, show
from duetime.domain.call_steps import Transition
from duetime.domain.executions import LoggedMessage
from duetime.domain.service_calls import ServiceCall
from duetime.stores.backends.dynamodb.backend import DynamoDbBackend
from duetime.stores.core.store import Store
from duetime.stores.port.calls import ApplyStatus, CallRef
from duetime.testing.contract import call_builders as make
from tests.support.capacity import CapacityMeter, counted_client
from tests.support.clock import NOW
from tests.support.dynamodb import unique_table_name
from tests.support.ministack import running_ministack

USUAL: dict[str, Any] = {
    "name": "monthly report",
    "url": "https://api.example.com/v1/reports/monthly",
    "headers_json": '{"Content-Type":"application/json","X-Source":"billing"}',
    "body_json": '{"customer":"0191e5a2-6c3f-7c5e-9d1b-2f6c1f0a7b11","kind":"monthly"}',
    "correlation_id": "0191e5a2-6c3f-7c5e-9d1b-2f6c1f0a7b12",
}
"""A usual call: a small JSON body, no tags, no idempotency key."""

KINDS: dict[str, dict[str, Any]] = {
    "usual": {},
    "with an idempotency key": {"idempotency_key": "order-4711-report"},
    "with three tags": {"tags": ("billing", "monthly", "emea")},
    "body of 4 KiB": {"body_json": json.dumps("x" * 4000)},
    "body of 256 KiB": {"body_json": json.dumps("x" * (256 * 1024 - 2))},
    "answer of 64 KiB": {"answer_bytes": 64 * 1024},
}


@dataclass(frozen=True, slots=True)
class Step:
    """Write units and requests of one step, per call."""

    name: str
    write_units: float
    requests: float


class Life:
    """Takes ``number`` calls through their lives, side by side, and counts each step."""

    def __init__(self, client: Any, number: int) -> None:
        self._store = Store(DynamoDbBackend(client, unique_table_name(), batch_statements=False))
        self._store.initialise()
        self._number = number
        self._meter = CapacityMeter(client)
        self.steps: list[Step] = []

    def close(self) -> None:
        self._meter.stop()

    def run(self, *, answer_bytes: int = 20, **fields: Any) -> list[Step]:
        given = USUAL | fields
        later = NOW + timedelta(hours=1)
        calls = self._apply("submit", [self._submitted(number, given) for number in range(self._number)])
        calls = self._apply("begin", [make.begun(call, now=later) for call in calls])
        answer = LoggedMessage(
            headers=(("content-type", "application/json"), ("content-length", str(answer_bytes))),
            body="x" * answer_bytes,
            body_bytes=answer_bytes,
        )
        calls = self._apply("end", [self._ended(call, answer, later) for call in calls])
        self._count("publish", self._publish)
        self._count("delete", lambda: self._delete(calls))
        return self.steps

    def _submitted(self, number: int, fields: dict[str, Any]) -> Transition:
        unique = {"idempotency_key": f"{fields['idempotency_key']}-{number}"} if "idempotency_key" in fields else {}
        return make.submitted(**(fields | unique), due_at=NOW + timedelta(hours=1))

    def _ended(self, call: ServiceCall, answer: LoggedMessage, now: datetime) -> Transition:
        assert call.execution_id is not None
        execution = self._store.calls.get_execution(call.tenant_id, call.call_id, call.execution_id)
        assert execution is not None
        transition = make.concluded(call, execution, now=now)
        return replace(transition, executions=(replace(transition.executions[0], response=answer),))

    def _apply(self, step: str, transitions: Sequence[Transition]) -> list[ServiceCall]:
        def act() -> None:
            statuses = self._store.calls.apply(transitions, now=NOW)
            assert set(statuses) == {ApplyStatus.APPLIED}

        self._count(step, act)
        return [transition.after for transition in transitions]

    def _publish(self) -> None:
        found = self._store.outbox.unpublished(limit=10 * self._number)
        assert len(found) == 7 * self._number
        self._store.outbox.mark_published(found, now=NOW)

    def _delete(self, calls: Sequence[ServiceCall]) -> None:
        for call in calls:
            self._store.calls.delete(call.tenant_id, call.call_id, now=NOW)

    def _count(self, step: str, act: Callable[[], None]) -> None:
        self._meter.reset()
        act()
        requests = self._meter.total_requests / self._number
        self.steps.append(Step(step, self._meter.write_units / self._number, requests))


def print_reads(client: Any, number: int) -> None:
    """Print requests and read items of reading calls back."""
    store = Store(DynamoDbBackend(client, unique_table_name(), batch_statements=False))
    store.initialise()
    submitted = [make.submitted(**USUAL) for _ in range(number)]
    store.calls.apply(submitted, now=NOW)
    meter = CapacityMeter(client)
    store.calls.get([CallRef(each.after.tenant_id, each.after.call_id) for each in submitted], now=NOW)
    show(f"requests for reading {number} calls by id", **meter.requests)
    meter.reset()
    store.outbox.unpublished(limit=1)
    show("requests for looking for unpublished events", **meter.requests)
    meter.stop()


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--calls", type=int, default=20)
    number = options.parse_args().calls
    with running_ministack() as endpoint_url, counted_client(endpoint_url) as client:
        for kind, fields in KINDS.items():
            life = Life(client, number)
            steps = life.run(**fields)
            life.close()
            lived = sum(step.write_units for step in steps if step.name != "delete")
            show(f"write units per call, {kind}", **{step.name: step.write_units for step in steps}, but_delete=lived)
            show(f"requests per call, {kind}", **{step.name: step.requests for step in steps})
        print_reads(client, number)


if __name__ == "__main__":
    main()
