"""Events of service calls from ``duetime serve`` to a tenant's webhook, to the log and to the metrics."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from standardwebhooks import Webhook

from duetime_client.webhooks import verify_event
from tests.support.call_api import LIFE
from tests.support.callbacks import Arrival, CallbackReceiver
from tests.support.metrics import Scrape
from tests.support.processes import DuetimeServer

TENANT = "/v1/tenants/acme"
SECRET = "s3cr3t"


def wait_until(is_so: Callable[[], bool], what: str, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, f"no {what} in {seconds} s"
        time.sleep(0.02)


def ok(server: DuetimeServer, method: str, path: str, body: Any = None) -> Any:
    answer = server.client.request(method, f"{TENANT}{path}", json=body)
    assert answer.status_code < 300, answer.text
    return answer.json() if answer.content else None


def submit(server: DuetimeServer, target: CallbackReceiver, **more: Any) -> str:
    request = {"method": "POST", "url": f"{target.url}?key={SECRET}", "body": {"timerId": "call"}}
    call_id: str = ok(server, "POST", "/service-calls", {"name": "n", "request": request, **more})["id"]
    return call_id


def events_of(hooks: CallbackReceiver, call_id: str) -> list[Arrival]:
    return [arrival for arrival in list(hooks.arrivals) if arrival.body["aggregateId"] == call_id]


def test_a_calls_events_arrive_in_order_signed_and_at_once(tmp_path: Path) -> None:
    with (
        CallbackReceiver() as target,
        CallbackReceiver() as hooks,
        DuetimeServer("--workers", "2", cwd=tmp_path, DUETIME_LOG_LEVEL="debug") as server,
    ):
        secret = ok(server, "POST", "/event-webhook/secrets", {})["secret"]
        ok(server, "PUT", "/event-webhook", {"url": f"{hooks.url}?key={SECRET}"})
        server.wait_for("outbox.claimed")
        calls = [submit(server, target, correlationId=f"order-{number}") for number in range(5)]
        wait_until(lambda: len(hooks.arrivals) >= 7 * len(calls), "events")
        published = Scrape(server.client.get("/metrics").text).total("duetime_outbox_published_total")
        wait_until(lambda: len(server.of("service_call.event")) >= 7 * len(calls), "events in the log")
        deliveries = ok(server, "GET", "/event-webhook/deliveries?limit=100&state=fired")["items"]
        assert server.terminate() == 0
        logged = "".join([*map(str, server.events), *server.noise])

    for number, call_id in enumerate(calls):
        arrivals = events_of(hooks, call_id)
        assert [arrival.body["type"] for arrival in arrivals] == LIFE
        assert [arrival.body["sequence"] for arrival in arrivals] == list(range(1, 8))
        assert {arrival.headers["x-correlation-id"] for arrival in arrivals} == {f"order-{number}"}
    for arrival in hooks.arrivals:
        assert Webhook(secret).verify(arrival.raw, arrival.headers) == arrival.body
        assert verify_event(arrival.raw, arrival.headers, secret).event_id == arrival.headers["webhook-id"]
        age = arrival.at.timestamp() - verify_event(arrival.raw, arrival.headers, secret).occurred_at.timestamp()
        assert age < 10
    assert published == 7 * len(calls)
    assert deliveries
    assert SECRET not in logged
    assert secret not in logged


def test_a_receiver_that_is_down_is_caught_up_in_order_and_holds_up_nothing_else(tmp_path: Path) -> None:
    is_down = True

    def answer(arrival: Arrival) -> tuple[int, bytes]:
        return (500 if is_down else 204), b""

    with CallbackReceiver() as target, CallbackReceiver(answer) as hooks, DuetimeServer(cwd=tmp_path) as server:
        ok(server, "PUT", "/event-webhook", {"url": hooks.url})
        call_id = submit(server, target)
        wait_until(lambda: bool(target.arrivals), "request of the call")
        wait_until(lambda: bool(events_of(hooks, call_id)), "attempt")
        wait_until(lambda: len(server.of("service_call.event")) == 7, "events in the log")
        is_down = False
        wait_until(lambda: len(events_of(hooks, call_id)) >= 8, "events", seconds=60)
        sequence = [arrival.body["sequence"] for arrival in events_of(hooks, call_id)]
    assert sequence == sorted(sequence)
    assert set(sequence) == set(range(1, 8))
    ids = [arrival.headers["webhook-id"] for arrival in events_of(hooks, call_id)]
    assert len(set(ids)) == 7  # a repeat has the id that it had


def test_a_process_that_is_to_publish_nothing_leaves_the_events_to_the_next(tmp_path: Path) -> None:
    with CallbackReceiver() as target, CallbackReceiver() as hooks:
        with DuetimeServer("--event-publishers", "none", cwd=tmp_path) as server:
            ok(server, "PUT", "/event-webhook", {"url": hooks.url})
            call_id = submit(server, target)
            wait_until(lambda: bool(target.arrivals), "request of the call")
            assert server.terminate() == 0
        assert server.of("outbox.claimed") == []
        assert hooks.arrivals == []
        with DuetimeServer("--event-publishers", "webhook", cwd=tmp_path) as server:
            wait_until(lambda: len(hooks.arrivals) >= 7, "events")
            assert server.of("service_call.event") == []
        assert [arrival.body["type"] for arrival in events_of(hooks, call_id)] == LIFE
