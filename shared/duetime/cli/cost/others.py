"""What other services charge for the same timers: create one, wait, call an HTTPS endpoint once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from duetime.cli.cost.bill import Charge, Charges
from duetime.cli.cost.workload import GB, MILLION, Workload

_CALLER_MEMORY_GB = 0.125
_OPERATIONS_OF_A_WAIT = 3
"""Of a durable function: it starts, waits, and takes the step that calls."""
_TRANSITIONS_OF_A_WAIT = 4
"""Of a workflow: start, wait, call, end, as the examples on its page of prices count them."""


@dataclass(frozen=True, slots=True)
class Other:
    """Another service. ``note``: what to know beside the price."""

    name: str
    note: str
    charges: Callable[[Workload], Charges]


def _scheduler(workload: Workload) -> Charges:
    millions = workload.timers_per_month / MILLION
    yield Charge("invocations", "schedulerInvocations", millions)
    if workload.target is None:
        yield Charge("events on a bus", "busEvents", millions * workload.chunks(64))
        yield Charge("calls of an API destination", "apiDestinations", millions)


def _step_functions(workload: Workload) -> Charges:
    yield Charge(
        "state transitions", "stateTransitions", _TRANSITIONS_OF_A_WAIT * workload.timers_per_month / MILLION
    )


def _durable_functions(workload: Workload) -> Charges:
    millions = workload.timers_per_month / MILLION
    written = workload.timers_per_month * workload.payload_bytes / GB
    kept = workload.pending_months + workload.retention_months
    yield Charge("durable operations", "durableOperations", _OPERATIONS_OF_A_WAIT * millions)
    yield Charge("data written", "durableData", written)
    yield Charge("data retained", "durableRetention", written * kept)
    yield Charge("requests", "lambdaRequests", 2 * millions)
    yield Charge("time", "lambdaDuration", 2 * millions * workload.api_milliseconds / 1000 * _CALLER_MEMORY_GB)


def _cloud_tasks(workload: Workload) -> Charges:
    operations = 2 * workload.timers_per_month * workload.chunks(32)
    yield Charge("operations", "cloudTasksOperations", operations / MILLION)


def _qstash(workload: Workload) -> Charges:
    yield Charge("messages", "qstashMessages", workload.timers_per_month / MILLION)


OTHERS = (
    Other("EventBridge Scheduler", "within 60 s of the due time; to a URL with an API destination", _scheduler),
    Other("Step Functions", "standard workflow: wait, then an HTTP task", _step_functions),
    Other("Lambda durable functions", "wait, then a step that calls", _durable_functions),
    Other("Cloud Tasks", "a create and an attempt each; at most 30 days ahead", _cloud_tasks),
    Other("QStash", "by message, or by the plan that is cheaper", _qstash),
)
