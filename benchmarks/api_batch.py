"""Batch create through the handler, in one process and without a server: what the API itself costs.

    python -m benchmarks.api_batch [--batches 40] [--items 500]

Stages, in timers/s: reading the body into timers (scan, validate, digest), the whole handler on a store that
keeps nothing, and the whole handler on SQLite in memory. Also single creates and reads, in requests/s.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

from benchmarks.figures import parser, show
from duetime.api.context import ApiContext
from duetime.api.handler import build_handler
from duetime.api.http.raw_json import read_object
from duetime.api.timers.parsing import read_timer
from duetime.api.timers.requests import TIMERS_SHAPE
from duetime.domain.timers import Timer
from duetime.runtime.clock import SystemClock
from duetime.runtime.ids import new_id
from duetime.stores.core.store import Store
from duetime.stores.open import open_store
from duetime.stores.port.timers import PutResult, PutStatus
from tests.support.parts import overlaid

CLOCK = SystemClock()


def forgetful_store(store: Store) -> Store:
    """Return a store that takes timers and keeps none: what is left is the API. Namespaces come from the store behind
    it.
    """

    def put(timers: Sequence[Timer], **_: Any) -> list[PutResult]:
        return [PutResult(PutStatus.CREATED, timer) for timer in timers]

    return overlaid(store, timers=overlaid(store.timers, put=put))


def timer_text(number: int, *, is_rich: bool) -> str:
    body: dict[str, Any] = {
        "id": f"timer-{number}",
        "executeAt": "2030-12-20T15:30:00Z",
        "callbackUrl": "https://receiver.example/callbacks/orders",
        "payload": {"orderId": number, "kind": "reminder", "amount": 12.5},
    }
    if is_rich:
        body |= {
            "headers": {"X-Tenant": "acme"},
            "retryPolicy": {"maxAttempts": 5, "initialInterval": "2s"},
            "correlationId": f"order-{number}",
            "tags": ["orders", "reminders"],
        }
    return json.dumps(body)


def event(method: str, path: str, body: str | None = None) -> dict[str, Any]:
    return {
        "rawPath": path,
        "rawQueryString": "",
        "headers": {"content-type": "application/json"},
        "requestContext": {"http": {"method": method, "path": path}, "stage": "$default", "requestId": "r1"},
        "body": body,
        "isBase64Encoded": False,
    }


def per_second(work: Callable[[], None], count: int) -> float:
    """Return the best of three runs, each doing ``count`` things."""
    best = float("inf")
    for _ in range(3):
        started = perf_counter()
        work()
        best = min(best, perf_counter() - started)
    return count / best


def measure(*, batches: int, items: int, is_rich: bool) -> None:
    store = open_store("sqlite://")
    store.initialise()
    namespace, _ = store.catalogue.create_namespace("default", num_shards=16, dedicated=False, now=CLOCK.now())
    bodies = [
        f'{{"timers":[{",".join(timer_text(batch * items + n, is_rich=is_rich) for n in range(items))}]}}'
        for batch in range(batches)
    ]
    path = "/v1/namespaces/default/timers"

    context = ApiContext(store=store, clock=CLOCK, new_id=new_id)

    def read() -> None:
        now = CLOCK.now()
        for body in bodies:
            for found in read_object(body, TIMERS_SHAPE).members["timers"]:
                read_timer(found, namespace, context, now=now)

    def create(into: Store) -> Callable[[], None]:
        handler = build_handler(ApiContext(store=into, clock=CLOCK, new_id=new_id))

        def work() -> None:
            for body in bodies:
                answer = handler(event("POST", f"{path}/batch", body), None)
                assert answer["statusCode"] == 200

        return work

    total = batches * items
    forgetful = forgetful_store(store)
    show(
        f"batches of {items}, timers of {len(bodies[0]) // items} bytes",
        read_and_validate_per_s=per_second(read, total),
        handler_forgetful_per_s=per_second(create(forgetful), total),
        handler_sqlite_memory_per_s=total / _once(create(store)),
    )

    handler = build_handler(ApiContext(store=forgetful, clock=CLOCK, new_id=new_id))
    single = event("POST", path, timer_text(0, is_rich=is_rich))
    one = event("GET", f"{path}/timer-0")
    show(
        "single requests",
        create_forgetful_per_s=per_second(lambda: _repeat(handler, single), 5000),
        read_sqlite_memory_per_s=per_second(lambda: _repeat(handler, one), 5000),
    )
    store.close()


def _once(work: Callable[[], None]) -> float:
    started = perf_counter()
    work()
    return perf_counter() - started


def _repeat(handler: Any, request: dict[str, Any]) -> None:
    for _ in range(5000):
        handler(request, None)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--batches", type=int, default=40)
    options.add_argument("--items", type=int, default=500)
    given = options.parse_args()
    for is_rich in (False, True):
        measure(batches=given.batches, items=given.items, is_rich=is_rich)


if __name__ == "__main__":
    main()
