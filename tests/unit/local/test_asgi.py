from __future__ import annotations

import asyncio
import itertools
import json
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from duetime.local.asgi import API_THREADS, MAX_LARGE_BODIES, SMALL_BODY_BYTES, LambdaAsgiApp, LocalContext
from tests.support.clock import FakeClock

LIMIT = 100


def make_app(handler: Any, *, body_timeout_seconds: float = 5.0, max_body_bytes: int = LIMIT) -> LambdaAsgiApp:
    ids = itertools.count()
    return LambdaAsgiApp(
        handler,
        clock=FakeClock(),
        new_id=lambda: f"r-{next(ids)}",
        max_body_bytes=max_body_bytes,
        body_timeout_seconds=body_timeout_seconds,
    )


def echo(event: dict[str, Any], context: LocalContext) -> dict[str, Any]:
    return {
        "statusCode": 200,
        "headers": {"content-type": "application/json"},
        "body": json.dumps({"event": event, "request_id": context.aws_request_id}),
    }


@asynccontextmanager
async def client_of(app: LambdaAsgiApp) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://duetime.test") as client:
        yield client


def call(app: LambdaAsgiApp, method: str, path: str, **options: Any) -> httpx.Response:
    async def send() -> httpx.Response:
        async with client_of(app) as client:
            return await client.request(method, path, **options)

    return asyncio.run(send())


def test_a_request_reaches_the_handler_as_a_gateway_event() -> None:
    response = call(make_app(echo), "POST", "/v1/a%20b?x=1", json={"k": "v"})
    seen = response.json()
    assert response.status_code == 200
    assert seen["event"]["rawPath"] == "/v1/a b"
    assert seen["event"]["queryStringParameters"] == {"x": "1"}
    assert json.loads(seen["event"]["body"]) == {"k": "v"}
    assert seen["request_id"] == seen["event"]["requestContext"]["requestId"] == "r-0"
    assert response.headers["content-length"] == str(len(response.content))


def test_an_empty_answer_has_no_length() -> None:
    response = call(make_app(lambda event, context: {"statusCode": 204}), "DELETE", "/")
    assert response.status_code == 204
    assert "content-length" not in response.headers


def test_an_answer_to_head_tells_no_length_that_a_get_would_not_have() -> None:
    response = call(make_app(lambda event, context: {"statusCode": 200, "body": ""}), "HEAD", "/")
    assert response.status_code == 200
    assert "content-length" not in response.headers


def test_a_handler_that_fails_is_a_500_without_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    def fail(event: dict[str, Any], context: LocalContext) -> dict[str, Any]:
        raise RuntimeError("secret detail")

    response = call(make_app(fail), "GET", "/")
    assert response.status_code == 500
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["code"] == "internal"
    assert "secret detail" not in response.text
    assert [record.action for record in caplog.records if hasattr(record, "action")] == ["http.failed"]


def test_a_path_that_is_not_utf8_is_a_400() -> None:
    assert call(make_app(echo), "GET", "/%ff").status_code == 400


def test_a_body_at_the_limit_is_served_and_one_over_it_is_a_413() -> None:
    assert call(make_app(echo), "POST", "/", content=b"x" * LIMIT).status_code == 200
    response = call(make_app(echo), "POST", "/", content=b"x" * (LIMIT + 1))
    assert response.status_code == 413
    assert response.json()["code"] == "payload_too_large"


def test_a_body_of_unknown_length_is_refused_as_soon_as_it_is_over_the_limit() -> None:
    sent: list[int] = []

    async def chunks() -> AsyncIterator[bytes]:
        for number in range(1000):
            sent.append(number)
            yield b"x" * 60

    messages: list[dict[str, Any]] = []

    async def drive() -> None:
        source = chunks()

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": await anext(source), "more_body": True}

        async def send(message: Any) -> None:
            messages.append(message)

        scope: dict[str, Any] = {
            "type": "http",
            "method": "POST",
            "raw_path": b"/",
            "query_string": b"",
            "headers": [],
            "http_version": "1.1",
            "client": None,
        }
        await make_app(echo)(scope, receive, send)

    asyncio.run(drive())
    assert messages[0]["status"] == 413
    assert len(sent) == 2


def test_a_body_that_does_not_arrive_is_a_408_and_closes_the_connection() -> None:
    async def stall() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    response = call(make_app(echo, body_timeout_seconds=0.05), "POST", "/", content=stall())
    assert response.status_code == 408
    assert response.headers["connection"] == "close"


def test_bodies_that_arrive_slowly_keep_only_large_ones_waiting() -> None:
    large = b"x" * (SMALL_BODY_BYTES + 1)
    app = make_app(echo, body_timeout_seconds=60, max_body_bytes=2 * len(large))
    stalled, goes_on = asyncio.Semaphore(0), asyncio.Event()

    async def stall(first: bytes) -> AsyncIterator[bytes]:
        yield first
        stalled.release()
        await goes_on.wait()

    async def drive() -> None:
        async with client_of(app) as client:
            slow = [
                asyncio.create_task(client.post("/slow", content=stall(first)))
                for first in [large] * MAX_LARGE_BODIES + [b"x"] * 100
            ]
            for _ in slow:
                await stalled.acquire()
            assert (await client.post("/small", content=b"{}")).status_code == 200
            waiting = asyncio.create_task(client.post("/large", content=large))
            await asyncio.sleep(0)
            assert (await client.get("/")).status_code == 200
            assert not waiting.done()
            goes_on.set()
            assert {response.status_code for response in await asyncio.gather(waiting, *slow)} == {200}

    asyncio.run(drive())


def test_requests_run_side_by_side_in_a_bounded_number_of_threads() -> None:
    barrier = threading.Barrier(API_THREADS)
    running = itertools.count(1)
    at_once: list[int] = []
    lock = threading.Lock()
    now = 0

    def meet(event: dict[str, Any], context: LocalContext) -> dict[str, Any]:
        nonlocal now
        with lock:
            now += 1
            at_once.append(now)
        if next(running) <= API_THREADS:
            barrier.wait(timeout=30)  # passes only when that many handlers run at once
        with lock:
            now -= 1
        return {"statusCode": 200, "body": event["rawPath"]}

    async def send_many() -> list[httpx.Response]:
        async with client_of(make_app(meet)) as client:
            return await asyncio.gather(*(client.get(f"/{number}") for number in range(API_THREADS * 3)))

    answers = asyncio.run(send_many())
    assert [response.text for response in answers] == [f"/{number}" for number in range(API_THREADS * 3)]
    assert max(at_once) == API_THREADS


def test_a_client_that_goes_away_is_no_request() -> None:
    calls: list[object] = []
    messages: Iterator[dict[str, Any]] = iter(
        [{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}]
    )

    async def drive() -> None:
        async def receive() -> dict[str, Any]:
            return next(messages)

        async def send(message: Any) -> None:
            calls.append(message)

        scope = {"type": "http", "method": "POST", "headers": [], "raw_path": b"/", "query_string": b""}
        await make_app(lambda event, context: pytest.fail("called"))(scope, receive, send)

    asyncio.run(drive())
    assert calls == []


def test_lifespan() -> None:
    sent: list[str] = []

    async def drive() -> None:
        async def receive() -> dict[str, Any]:
            return {"type": "lifespan.startup" if not sent else "lifespan.shutdown"}

        async def send(message: Any) -> None:
            sent.append(message["type"])

        await make_app(echo)({"type": "lifespan"}, receive, send)

    asyncio.run(drive())
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


def test_other_protocols_are_refused() -> None:
    with pytest.raises(ValueError, match="websocket"):
        asyncio.run(make_app(echo)({"type": "websocket"}, None, None))  # type: ignore[arg-type]


class Sharing:
    """A handler that answers POST requests together. Notes which ones were asked at once, and which alone."""

    def __init__(self) -> None:
        self.together: list[list[str]] = []
        self.alone: list[str] = []
        self.is_held = threading.Event()
        self.goes_on = threading.Event()

    def __call__(self, event: dict[str, Any], context: LocalContext) -> dict[str, Any]:
        self.alone.append(event["rawPath"])
        return {"statusCode": 200, "body": event["rawPath"]}

    def shares_write(self, event: dict[str, Any]) -> bool:
        return bool(event["requestContext"]["http"]["method"] == "POST")

    def answer_together(self, events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        self.together.append([event["rawPath"] for event in events])
        if "/first" in self.together[-1]:
            self.is_held.set()
            assert self.goes_on.wait(timeout=30)
        if "/bad" in self.together[-1]:
            raise RuntimeError("broken")
        return [{"statusCode": 201, "body": event["rawPath"]} for event in events]


def test_what_arrives_while_a_write_is_under_way_shares_the_next_one_and_nobody_else_waits() -> None:
    handler = Sharing()
    app = make_app(handler, max_body_bytes=2 * SMALL_BODY_BYTES)
    later = [f"/{number}" for number in range(5)]

    async def drive() -> None:
        async with client_of(app) as client:
            first = asyncio.create_task(client.post("/first"))
            await asyncio.to_thread(handler.is_held.wait, 30)
            others = [asyncio.create_task(client.post(path)) for path in later]
            assert (await client.get("/read")).text == "/read"
            assert (await client.post("/large", content=b"x" * (SMALL_BODY_BYTES + 1))).text == "/large"
            assert not any(task.done() for task in (first, *others))
            handler.goes_on.set()
            answers = await asyncio.gather(first, *others)
            assert [(each.status_code, each.text) for each in answers] == [(201, path) for path in ["/first", *later]]
            assert {each.status_code for each in await asyncio.gather(client.post("/bad"), client.post("/bad"))} == {
                500
            }
            assert (await client.post("/alone")).status_code == 201

    asyncio.run(drive())
    assert handler.together == [["/first"], later, ["/bad", "/bad"], ["/alone"]]
    assert handler.alone == ["/read", "/large"]


def test_a_stop_answers_what_was_accepted() -> None:
    handler = Sharing()
    app = make_app(handler)

    async def drive() -> list[httpx.Response]:
        messages = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])

        async def receive() -> dict[str, Any]:
            return next(messages)

        async def send(message: Any) -> None: ...

        async with client_of(app) as client:
            asked = [asyncio.create_task(client.post("/first"))]
            await asyncio.to_thread(handler.is_held.wait, 30)
            asked += [asyncio.create_task(client.post(f"/{number}")) for number in range(3)]
            await client.get("/")  # by now they wait
            handler.goes_on.set()
            await app({"type": "lifespan"}, receive, send)
            return await asyncio.gather(*asked)

    assert {response.status_code for response in asyncio.run(drive())} == {201}
    assert sum(map(len, handler.together)) == 4
