"""Plays a plan in virtual time over the real store, API and pollers, and writes down all that users can see of it."""

from __future__ import annotations

import asyncio
import json
import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from itertools import count
from random import Random
from typing import Any

import sqlalchemy as sa

from duetime.api.context import ApiContext
from duetime.api.handler import build_handler
from duetime.api.routes import all_routes
from duetime.app.service_calls import CallServices
from duetime.calls.executor import CallExecutor
from duetime.calls.message_log import LogRules
from duetime.calls.submission import CallNamespaces, Submitter
from duetime.delivery.port import Callback
from duetime.domain.call_steps import CallRules
from duetime.engine.poller import Poller
from duetime.engine.settings import EngineSettings
from duetime.stores.core.store import Store
from duetime.testing.virtual_time import VirtualClock, VirtualTimeLoop
from tests.histories.plan import NAMESPACES, POLLERS, START, TENANT, Fault, FaultKind, Plan, Request
from tests.support.engine import make_poller
from tests.support.faulty_store import Faults, FaultyStore
from tests.support.http import Api
from tests.support.scripted_sender import RequestSender, Script
from tests.support.stores import memory_store
from tests.support.timed_store import SkewedClock, TimedStore

History = dict[str, Any]
"""``seed``, ``hasFaults``; ``responses`` of the API in order; ``requests`` that each receiver got, in order; at the
end ``timers`` and ``calls`` as the API shows them, and ``rows`` by table. JSON values only."""

END_SECONDS = 60.0
"""After the last step: retries, leases and back-offs end."""
_RULES = CallRules(retention_seconds=86400.0)
_SETTINGS = EngineSettings(record_linger_seconds=0.02)
_VOLATILE = frozenset({"webhook-timestamp", "traceparent"})
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")


def play(plan: Plan) -> History:
    clock = VirtualClock(START)
    with memory_store() as store, asyncio.Runner(loop_factory=lambda: VirtualTimeLoop(clock)) as runner:
        return runner.run(_Player(plan, store, clock).play())


@dataclass
class _Running:
    poller: Poller
    task: asyncio.Task[None]
    clock: SkewedClock
    faults: Faults


class _Player:
    def __init__(self, plan: Plan, store: Store, clock: VirtualClock) -> None:
        self._plan = plan
        self._store = store
        self._clock = clock
        self._ids = count(1)
        self._names = count(1)
        self._calls: list[str] = []
        self._requests: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self._pollers: list[_Running] = []
        context = ApiContext(store=store, clock=clock, new_id=self._new_id, on_stored=self._notify)
        submitter = Submitter(
            store.calls,
            CallNamespaces(store.catalogue, num_shards=4),
            new_id=self._new_id,
            on_stored=self._notify,
            random_bits=Random(plan.seed).getrandbits,
        )
        services = CallServices(store.calls, submitter, _RULES, self._notify, clock)
        self._api = Api(build_handler(replace(context, calls=services), all_routes()))

    async def play(self) -> History:
        for namespace in NAMESPACES:
            self._api.call("PUT", f"/v1/namespaces/{namespace}", {"numShards": 4})
        for _ in range(POLLERS):
            self._start_poller()
        responses = []
        for step in self._plan.steps:
            await self._sleep_until(step.at_seconds)
            if isinstance(step, Fault):
                await self._do(step)
            else:
                responses.append(self._send(step))
        for namespace in NAMESPACES:
            self._api.call("POST", f"/v1/namespaces/{namespace}/resume", {})
        await asyncio.sleep(END_SECONDS)
        history = {
            "seed": self._plan.seed,
            "hasFaults": self._plan.has_faults,
            "responses": responses,
            "requests": dict(self._requests),
            "timers": {namespace: self._timers(namespace) for namespace in NAMESPACES},
            "calls": [self._call(call_id) for call_id in self._calls],
            "rows": self._rows(),
        }
        for running in self._pollers:
            assert not running.task.done(), running
            running.task.cancel()
        await asyncio.gather(*(running.task for running in self._pollers), return_exceptions=True)
        return _with_counted_ids(history)

    async def _sleep_until(self, at_seconds: float) -> None:
        await asyncio.sleep(max(0.0, at_seconds - self._clock.elapsed_seconds))

    def _new_id(self) -> str:
        """A UUIDv7 of now; later ones are greater."""
        stamp = f"{round(self._clock.now().timestamp() * 1000):012x}"
        return f"{stamp[:8]}-{stamp[8:]}-7000-8000-{next(self._ids):012x}"

    def _notify(self, timers: Any) -> None:
        """The API is in the process of the first poller."""
        if self._pollers:
            self._pollers[0].poller.notify(timers)

    # -- pollers ---------------------------------------------------------------------------------------------

    def _start_poller(self, at: int = POLLERS) -> None:
        own_clock, faults = SkewedClock(self._clock, 0.0), Faults(self._clock)
        store = FaultyStore(TimedStore(self._store, self._clock), faults)
        poller = make_poller(
            store,
            RequestSender(answer=self._respond),
            self._clock,
            worker_id=f"worker-{next(self._names)}",
            settings=_SETTINGS,
            handler=CallExecutor(
                store.calls, rules=_RULES, log_rules=LogRules(), new_id=self._new_id, random=Random(3).random
            ),
            new_id=self._new_id,
            own_clock=own_clock,
        )
        task = asyncio.get_running_loop().create_task(poller.run(asyncio.Event()))
        self._pollers.insert(at, _Running(poller, task, own_clock, faults))

    async def _do(self, fault: Fault) -> None:
        running = self._pollers[fault.poller]
        match fault.kind:
            case FaultKind.KILL:
                self._pollers.remove(running)
                running.task.cancel()
                await asyncio.gather(running.task, return_exceptions=True)
                self._start_poller(fault.poller)
            case FaultKind.CUT_OFF:
                running.faults.cut_until = self._clock.monotonic() + fault.value
            case FaultKind.CLOCK:
                running.clock.ahead_seconds = fault.value

    def _respond(self, request: Callback) -> Script:
        name = request.url.rsplit("/", 1)[1]
        headers = dict(line.split(": ", 1) for line in request.headers if ": " in line)
        self._requests[name].append(
            {
                "at": self._clock.now().isoformat(timespec="milliseconds"),
                "method": str(request.method),
                "headers": {key: value for key, value in headers.items() if key.lower() not in _VOLATILE},
                "body": None if request.body is None else request.body.decode(),
            }
        )
        number = len(self._requests[name])
        given = self._plan.responses[name]
        response: dict[str, Any] = given[number - 1] if number <= len(given) else {"status": 200}
        seconds = response.get("seconds", 0.001)
        body = dict(response.get("body", {}))
        if "nextExecuteAt" in body:
            after = self._clock.now() + timedelta(seconds=seconds + body["nextExecuteAt"])
            body["nextExecuteAt"] = after.isoformat(timespec="milliseconds")
        return Script(
            status=response["status"],
            body=json.dumps(body).encode() if body else b"",
            delay_seconds=seconds,
            retry_after=response.get("retry_after"),
        )

    # -- what is seen ----------------------------------------------------------------------------------------

    def _send(self, step: Request) -> dict[str, Any]:
        path = step.path
        if step.call is not None:
            path = path.format(call=self._calls[step.call] if step.call < len(self._calls) else "none")
        answer = self._api.call(step.method, path, step.body, headers=step.headers)
        body: Any = json.loads(answer.text) if answer.text else None
        if answer.status == 202 and path.startswith("/v1/tenants/") and body["id"] not in self._calls:
            self._calls.append(body["id"])
        return {"request": f"{step.method} {path}", "status": answer.status, "body": body}

    def _get(self, path: str) -> Any:
        answer = self._api.get(path)
        return answer.json() if answer.status == 200 else answer.status

    def _timers(self, namespace: str) -> list[Any]:
        path = f"/v1/namespaces/{namespace}/timers"
        ids = sorted(item["id"] for item in self._api.all_pages(path))
        return [self._get(f"{path}/{id_}") | {"log": self._get(f"{path}/{id_}/attempts")["items"]} for id_ in ids]

    def _call(self, call_id: str) -> Any:
        path = f"/v1/tenants/{TENANT}/service-calls/{call_id}"
        call: Any = self._get(path)
        if not isinstance(call, dict):
            return {"id": call_id, "gone": call}
        executions = [
            self._get(f"{path}/executions/{item['id']}") for item in self._api.all_pages(f"{path}/executions")
        ]
        return {**call, "executions": executions, "events": self._get(f"{path}/events")["items"]}

    def _rows(self) -> dict[str, list[dict[str, Any]]]:
        """As the store keeps them; leases, workers and versions of the schema are no business of a history."""
        engine = self._store.database.engine  # type: ignore[attr-defined]
        left_out = {"schema_migrations", "workers"}
        with engine.connect() as connection:
            tables = sorted(set(sa.inspect(connection).get_table_names()) - left_out)
            found = {
                table: sorted(
                    (_plain(row._mapping) for row in connection.exec_driver_sql(f'SELECT * FROM "{table}"')), key=str
                )
                for table in tables
            }
        return {table: [row for row in rows if "shard_owner_id" not in row] for table, rows in found.items()}


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    values = {name: value.hex() if isinstance(value, bytes) else value for name, value in row.items()}
    return {name: value for name, value in values.items() if value is not None}


def _with_counted_ids(history: History) -> History:
    """Ids that were made, replaced by their number in the order in which they appear: who makes fewer ids in between
    shall not differ."""
    numbers: dict[str, str] = {}
    return dict(_counted(history, partial(_number, numbers)))


def _number(numbers: dict[str, str], match: re.Match[str]) -> str:
    return numbers.setdefault(match[0], f"id-{len(numbers) + 1}")


def _counted(value: Any, number: Any) -> Any:
    if isinstance(value, str):
        return _ID.sub(number, value)
    if isinstance(value, list):
        return [_counted(item, number) for item in value]
    if isinstance(value, dict):
        return {_ID.sub(number, key): _counted(item, number) for key, item in value.items()}
    return value
