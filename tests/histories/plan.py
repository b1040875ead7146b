"""What happens in one run, made from a seed: requests of clients, responses of receivers, faults of pollers.

A plan speaks of what users see, the HTTP API and the receivers, and of times. So a plan of an old version can be
played by a new one whose rooms, ports and stored shapes are others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from random import Random
from typing import Any

START = datetime.fromisoformat("2027-01-01T00:00:00+00:00")
TENANT = "acme"
NAMESPACES = ("orders", "reports")
POLLERS = 2
LAST_STEP_SECONDS = 20.0
_TIMERS = 6
_RESPONSES: tuple[dict[str, Any], ...] = (
    {"status": 200},
    {"status": 200, "seconds": 1.5},
    {"status": 200, "seconds": 4.0},
    {"status": 204},
    {"status": 200, "body": {"ok": False}},
    {"status": 200, "body": {"nextExecuteAt": 3.0}},
    {"status": 302},
    {"status": 404},
    {"status": 410},
    {"status": 429, "retry_after": "2"},
    {"status": 500},
    {"status": 503, "seconds": 0.3},
    {"status": None},
)
"""``nextExecuteAt`` is in seconds from the response. Without ``status`` none comes."""
_POLICIES: tuple[dict[str, Any] | None, ...] = (
    None,
    {"maxAttempts": 1},
    {"maxAttempts": 3, "initialInterval": "500ms", "maxInterval": "2s"},
    {"maxAttempts": 5, "initialInterval": "1s", "maxInterval": "1s", "maxAttemptsDuration": "3s"},
)


class FaultKind(Enum):
    KILL = "kill"
    """Nothing is drained or released, and another poller starts."""
    CUT_OFF = "cutOff"
    """The poller's requests to the store fail for ``value`` seconds."""
    CLOCK = "clock"
    """The clock of the poller's machine is ``value`` seconds ahead from now on."""


@dataclass(frozen=True)
class Request:
    """``call`` in ``path`` stands for the id of the service call of that number, the first one submitted is 0."""

    at_seconds: float
    method: str
    path: str
    body: dict[str, Any] | None = None
    headers: dict[str, str] = field(default_factory=dict)
    call: int | None = None


@dataclass(frozen=True)
class Fault:
    at_seconds: float
    kind: FaultKind
    poller: int
    value: float = 0.0


@dataclass(frozen=True)
class Plan:
    """``responses``: by the receiver's name, the last path segment of its URL, one for each request that it gets.
    After the last one, and in the end, it says 200.
    """

    seed: int
    steps: tuple[Request | Fault, ...]
    responses: dict[str, tuple[dict[str, Any], ...]]

    @property
    def has_faults(self) -> bool:
        return any(isinstance(step, Fault) for step in self.steps)


def make_plan(seed: int) -> Plan:
    """Every other plan has faults."""
    return _Maker(seed).plan()


class _Maker:
    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._random = Random(seed)
        self._responses: dict[str, tuple[dict[str, Any], ...]] = {}
        self._calls = 0
        self._at = 0.0

    def plan(self) -> Plan:
        steps: list[Request | Fault] = []
        makers: list[tuple[Callable[[], Request], int]] = [
            (self._put, 6),
            (self._create, 3),
            (self._batch, 1),
            (self._patch, 4),
            (self._delete, 2),
            (self._fire, 2),
            (self._redrive, 2),
            (self._submit, 4),
            (self._change_call, 4),
            (self._set_namespace, 1),
        ]
        choices = [make for make, weight in makers for _ in range(weight)]
        while self._at < LAST_STEP_SECONDS:
            is_fault = self._seed % 2 == 1 and self._random.random() < 0.15
            steps.append(self._fault() if is_fault else self._random.choice(choices)())
            self._at = round(self._at + self._random.choice([0.0, 0.001, 0.05, 0.4, 1.0, 2.5]), 3)
        return Plan(self._seed, tuple(steps), self._responses)

    def _fault(self) -> Fault:
        kind = self._random.choice(list(FaultKind))
        values = {
            FaultKind.KILL: [0.0],
            FaultKind.CUT_OFF: [1.0, 3.0, 15.0],
            FaultKind.CLOCK: [0.0, 0.4, 5.0, -5.0, 12.0, -15.0, 300.0],
        }
        return Fault(self._at, kind, self._random.randrange(POLLERS), self._random.choice(values[kind]))

    # -- timers ----------------------------------------------------------------------------------------------

    def _put(self) -> Request:
        return Request(self._at, "PUT", self._timer(), self._content())

    def _create(self) -> Request:
        headers = {"Idempotency-Key": f"key-{self._random.randrange(4)}"} if self._random.random() < 0.3 else {}
        body = self._content() | ({} if headers else {"id": self._timer_id()})
        return Request(self._at, "POST", f"{self._namespace()}/timers", body, headers)

    def _batch(self) -> Request:
        items = [self._content() | {"id": self._timer_id()} for _ in range(self._random.randrange(1, 5))]
        return Request(self._at, "POST", f"{self._namespace()}/timers/batch", {"timers": items})

    def _patch(self) -> Request:
        content = self._content()
        names = self._random.sample(sorted(set(content) - {"callbackUrl"}), k=self._random.randrange(0, 3))
        return Request(self._at, "PATCH", self._timer(), {name: content[name] for name in names}, self._condition())

    def _delete(self) -> Request:
        return Request(self._at, "DELETE", self._timer(), headers=self._condition())

    def _fire(self) -> Request:
        return Request(self._at, "POST", f"{self._timer()}/fire", headers=self._condition())

    def _redrive(self) -> Request:
        if self._random.random() < 0.3:
            return Request(self._at, "POST", f"{self._namespace()}/redrive", {})
        return Request(self._at, "POST", f"{self._timer()}/redrive", headers=self._condition())

    def _condition(self) -> dict[str, str]:
        return {"If-Match": f'"{self._random.randrange(1, 4)}"'} if self._random.random() < 0.2 else {}

    def _content(self) -> dict[str, Any]:
        choose = self._random.choice
        content: dict[str, Any] = {
            "executeAt": self._time(),
            "callbackUrl": self._receiver(),
            "payload": {"n": self._random.randrange(1000)},
            "timeoutSeconds": choose([1, 3, 30]),
            "tags": choose([[], ["a"], ["a", "b"]]),
        }
        policy = choose(_POLICIES)
        if policy is not None:
            content["retryPolicy"] = policy
        if self._random.random() < 0.15:
            content["expireAfter"] = choose(["500ms", "3s"])
        return content

    # -- service calls ---------------------------------------------------------------------------------------

    def _submit(self) -> Request:
        self._calls += 1
        body: dict[str, Any] = {
            "name": f"call {self._calls}",
            "request": {"method": self._random.choice(["GET", "POST", "PUT"]), "url": self._receiver()},
            "dueAt": self._time(),
            "tags": self._random.choice([[], ["a"], ["a", "b"]]),
            "timeoutSeconds": self._random.choice([1, 3, 30]),
            "correlationId": f"correlation-{self._calls}",
        }
        policy = self._random.choice(_POLICIES)
        if policy is not None:
            body["retryPolicy"] = policy
        return Request(self._at, "POST", f"/v1/tenants/{TENANT}/service-calls", body)

    def _change_call(self) -> Request:
        if not self._calls:
            return self._submit()
        kind = self._random.choice(["patch", "cancel", "fire", "delete", "rerun", "star"])
        path, number = f"/v1/tenants/{TENANT}/service-calls/{{call}}", self._random.randrange(self._calls)
        if kind in ("patch", "star"):
            body = {"dueAt": self._time()} if kind == "patch" else {"starred": True, "tags": ["c"]}
            return Request(self._at, "PATCH", path, body, call=number)
        if kind == "delete":
            return Request(self._at, "DELETE", path, call=number)
        self._calls += kind == "rerun"
        return Request(self._at, "POST", f"{path}/{kind}", call=number)

    # -- what all have ---------------------------------------------------------------------------------------

    def _set_namespace(self) -> Request:
        path = self._namespace()
        if self._random.random() < 0.5:
            return Request(self._at, "POST", f"{path}/{self._random.choice(['pause', 'resume'])}", {})
        settings = {"maxInFlight": self._random.choice([1, 10, None]), "misfire": self._random.choice(["fire", None])}
        return Request(self._at, "PUT", path, settings)

    def _namespace(self) -> str:
        return f"/v1/namespaces/{self._random.choice(NAMESPACES)}"

    def _timer_id(self) -> str:
        return f"timer-{self._random.randrange(_TIMERS)}"

    def _timer(self) -> str:
        return f"{self._namespace()}/timers/{self._timer_id()}"

    def _time(self) -> str:
        seconds = self._at + self._random.choice([-1.0, 0.0, 0.2, 1.0, 3.0, 8.0])
        return (START + timedelta(seconds=seconds)).isoformat(timespec="milliseconds")

    def _receiver(self) -> str:
        """Each piece of content has a receiver of its own, so a history tells what came of which."""
        name = f"receiver-{len(self._responses)}"
        number = self._random.choice([0, 0, 1, 1, 2, 4])
        self._responses[name] = tuple(self._random.choice(_RESPONSES) for _ in range(number))
        return f"http://receiver.test/{name}"
