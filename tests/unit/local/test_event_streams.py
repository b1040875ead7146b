"""Streams of events, in virtual time: what is sent, when, and how a stream ends."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from duetime.api.http.authentication import KeyAuthenticator
from duetime.app.api_keys import create_key
from duetime.domain.errors import StoreUnavailable
from duetime.domain.principals import Role
from duetime.domain.times import MAX_INSTANT
from duetime.local.event_streams import EventStreams
from duetime.testing.contract.builders import seconds
from duetime.testing.virtual_time import InlineOffload, VirtualClock, run_virtually
from tests.support.call_api import CallWorld, call_world
from tests.support.clock import NOW
from tests.support.event_streams import SETTINGS, Client, InPlace, make_streams, play
from tests.support.parts import Overlay

SUBMITTED = ["ServiceCallSubmitted", "ServiceCallScheduled"]
EXECUTED = [
    "DueTimeReached",
    "ServiceCallRunning",
    "ExecutionStarted",
    "ExecutionSucceeded",
    "ServiceCallSucceeded",
]


@pytest.fixture
def calls() -> Iterator[CallWorld]:
    with call_world() as world:
        yield world


def test_what_has_happened_is_sent_at_once_and_the_rest_when_it_happens(calls: CallWorld) -> None:
    call_id = calls.submitted()["id"]
    client = Client(calls.path(call_id, "events"))

    async def script(streams: EventStreams) -> None:
        stream = asyncio.create_task(client.ask(streams))
        await asyncio.sleep(10)
        assert client.types == SUBMITTED
        calls.begin(call_id)
        await asyncio.sleep(2)  # the longest interval
        assert client.types == SUBMITTED + EXECUTED[:3]
        calls.finish(call_id)
        await asyncio.sleep(2)
        assert stream.done()

    play(calls, script)
    assert client.status == 200
    assert client.response_headers == {
        "content-type": "text/event-stream; charset=utf-8",
        "cache-control": "no-store",
        "x-accel-buffering": "no",
        "x-request-id": "r1",
    }
    assert client.types == SUBMITTED + EXECUTED
    assert client.text.startswith("retry: 2000\n\n")
    assert client.text.endswith('\n\nevent: end\ndata: {"reason":"finished"}\n\n')
    assert client.ended


def test_events_are_those_of_the_list(calls: CallWorld) -> None:
    call_id = calls.submitted(tags=["ünï\u2028cødé"])["id"]
    calls.finish(call_id)
    client = Client(calls.path(call_id, "events"))
    play(calls, client.ask)
    assert client.events == calls.api.get(calls.path(call_id, "events")).json()["items"]
    assert len(client.events) == 7


@pytest.mark.parametrize(
    ("query", "headers"), [("after=3", {}), ("", {"last-event-id": "3"}), ("after=1", {"last-event-id": "3"})]
)
def test_a_stream_is_resumed_behind_what_was_seen(calls: CallWorld, query: str, headers: dict[str, str]) -> None:
    call_id = calls.submitted()["id"]
    calls.finish(call_id)
    client = Client(calls.path(call_id, "events"), query, {"accept": "text/event-stream"} | headers)
    play(calls, client.ask)
    assert [event["sequence"] for event in client.events] == [4, 5, 6, 7]


def test_a_page_is_not_the_end(calls: CallWorld) -> None:
    call_id = calls.submitted()["id"]
    calls.finish(call_id)
    client = Client(calls.path(call_id, "events"), "limit=2")
    play(calls, client.ask)
    assert [event["sequence"] for event in client.events] == [*range(1, 8)]


@pytest.mark.parametrize("query", ["", "after=6", "after=7", "limit=7"])
def test_what_came_after_the_end_of_the_call_is_sent_too(calls: CallWorld, query: str) -> None:
    call_id = calls.submitted()["id"]
    calls.finish(call_id)
    assert calls.api.call("PATCH", calls.path(call_id), {"starred": True}).status == 200
    client = Client(calls.path(call_id, "events"), query)
    clock = VirtualClock(NOW)
    run_virtually(clock, client.ask(make_streams(calls, clock)))
    assert client.types[-1] == "ServiceCallUpdated"
    assert client.text.endswith('event: end\ndata: {"reason":"finished"}\n\n')
    assert clock.elapsed_seconds < 1


def test_a_stream_ends_where_the_end_of_the_call_was_pruned(calls: CallWorld) -> None:
    call_id = calls.submitted()["id"]
    calls.finish(call_id)
    calls.store.outbox.mark_published(calls.store.outbox.unpublished(limit=100), now=NOW)
    assert calls.calls.prune(now=NOW, events_published_before=MAX_INSTANT, limit=100) == 7
    assert calls.api.call("PATCH", calls.path(call_id), {"starred": True}).status == 200
    client = Client(calls.path(call_id, "events"))
    clock = VirtualClock(NOW)
    run_virtually(clock, client.ask(make_streams(calls, clock)))
    assert client.types == ["ServiceCallUpdated"]
    assert client.text.endswith('event: end\ndata: {"reason":"finished"}\n\n')
    assert clock.elapsed_seconds < 1


def test_who_has_seen_everything_need_not_come_back(calls: CallWorld) -> None:
    call_id = calls.submitted()["id"]
    calls.finish(call_id)
    client = Client(calls.path(call_id, "events"), "after=7")
    play(calls, client.ask)
    assert (client.status, client.text, client.response_headers) == (204, "", {"x-request-id": "r1"})


@pytest.mark.parametrize(
    ("path", "query", "headers", "status"),
    [
        ("01234567-89ab-7def-8123-456789abcdef/events", "", {}, 404),
        ("{call}/events", "after=x", {}, 400),
        ("{call}/events", "", {"last-event-id": "-1"}, 400),
        ("{call}/events", "more=1", {}, 400),
    ],
)
def test_what_the_api_refuses_is_no_stream(
    calls: CallWorld, path: str, query: str, headers: dict[str, str], status: int
) -> None:
    call_id = calls.submitted()["id"]
    accept = {"accept": "text/html, text/event-stream;q=0.9"}
    client = Client(calls.path(path.format(call=call_id)), query, accept | headers)
    play(calls, client.ask)
    assert (client.status, client.response_headers["content-type"]) == (status, "application/problem+json")


@pytest.mark.parametrize(
    ("method", "path", "accept"),
    [
        ("GET", "{call}/events", "application/json"),
        ("GET", "{call}", "text/event-stream"),
        ("HEAD", "{call}/events", "text/event-stream"),
        ("POST", "{call}/events", "text/event-stream"),
        ("GET", "{call}/events/", "text/event-stream"),
    ],
)
def test_everything_else_is_left_to_the_api(calls: CallWorld, method: str, path: str, accept: str) -> None:
    app = InPlace(calls)
    streams = EventStreams(app, calls.calls, clock=VirtualClock(NOW), offload=InlineOffload())
    client = Client(calls.path(path.format(call=calls.submitted()["id"])), headers={"accept": accept})
    asyncio.run(streams(client.scope | {"method": method}, client.receive(), client.send))
    asyncio.run(streams({"type": "lifespan"}, client.receive(), client.send))
    assert (app.others, client.status) == (2, 0)


def test_a_quiet_stream_shows_that_it_lives(calls: CallWorld) -> None:
    client = Client(calls.path(calls.submitted()["id"], "events"))

    async def script(streams: EventStreams) -> None:
        stream = asyncio.create_task(client.ask(streams))
        await asyncio.sleep(100)
        client.gone.set()
        await stream

    play(calls, script)
    beats = [at for at, text in client.chunks if text == ": still here\n\n"]
    assert len(beats) == 6
    assert all(15 <= later - earlier <= 17 for earlier, later in zip([0.0, *beats], beats, strict=False))


def test_a_stream_looks_more_rarely_while_nothing_happens(calls: CallWorld) -> None:
    reads: list[float] = []
    clock = VirtualClock(NOW)

    class Counting(Overlay):
        def get(self, *arguments: Any, **more: Any) -> Any:
            reads.append(clock.elapsed_seconds)
            return calls.calls.get(*arguments, **more)

        def list_events(self, *_: Any, **__: Any) -> Any:
            raise AssertionError("there are no further events")

    store: Any = Counting(calls.calls)
    client = Client(calls.path(calls.submitted()["id"], "events"))

    async def script() -> None:
        stream = asyncio.create_task(client.ask(make_streams(calls, clock, store=store)))
        await asyncio.sleep(60)
        client.gone.set()
        await stream

    run_virtually(clock, script())
    gaps = [later - earlier for earlier, later in pairwise(reads)]
    assert gaps[:4] == pytest.approx([0.25, 0.5, 1.0, 2.0], abs=0.001)
    assert gaps[4:] == pytest.approx([2.0] * len(gaps[4:]), abs=0.001)


def test_a_call_that_is_removed_ends_its_stream(calls: CallWorld) -> None:
    call_id = calls.submitted()["id"]
    client = Client(calls.path(call_id, "events"))

    async def script(streams: EventStreams) -> None:
        stream = asyncio.create_task(client.ask(streams))
        await asyncio.sleep(1)
        calls.finish(call_id)
        assert calls.api.call("DELETE", calls.path(call_id)).status == 204
        await stream

    play(calls, script)
    at, text = client.chunks[-1]
    assert text == 'event: end\ndata: {"reason":"removed"}\n\n'
    assert at <= 1 + 2


@pytest.mark.parametrize("end", ["deleted", "expires"])
def test_a_key_that_ends_takes_its_streams_with_it(
    calls: CallWorld, caplog: pytest.LogCaptureFixture, end: str
) -> None:
    """Within the seconds for which a good key is not read again, and what a look takes."""
    caplog.set_level("INFO")
    clock = VirtualClock(NOW)
    created = create_key(
        calls.store,
        key_id="k1",
        tenant_id="acme",
        role=Role.READER,
        name="",
        expires_at=clock.now() + seconds(60) if end == "expires" else None,
        now=clock.now(),
    )
    authenticator = KeyAuthenticator(calls.store.catalogue, clock, cache_seconds=5)
    call_id = calls.submitted()["id"]
    client = Client(
        calls.path(call_id, "events"),
        headers={"accept": "text/event-stream", "authorization": f"Bearer {created.text}"},
    )

    async def script() -> None:
        stream = asyncio.create_task(client.ask(make_streams(calls, clock, authenticator=authenticator)))
        await asyncio.sleep(60)
        if end == "deleted":
            assert calls.store.catalogue.delete_api_key("acme", "k1")
        await asyncio.sleep(7.1 if end == "deleted" else 2.1)
        assert client.ended
        calls.finish(call_id)
        await stream

    run_virtually(clock, script())
    assert client.types == SUBMITTED
    assert "event: end" not in client.text  # the client comes back, and is told that its key is not good
    (facts,) = [record for record in caplog.records if getattr(record, "action", "") == "events.streamed"]
    assert facts.reason == "unauthenticated"  # type: ignore[attr-defined]


def test_a_client_that_goes_is_noticed(calls: CallWorld, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    call_id = calls.submitted()["id"]
    client = Client(calls.path(call_id, "events"))

    async def script(streams: EventStreams) -> None:
        stream = asyncio.create_task(client.ask(streams))
        await asyncio.sleep(5)
        client.gone.set()
        await stream

    play(calls, script)
    (record,) = [vars(record) for record in caplog.records if getattr(record, "action", "") == "events.streamed"]
    assert (record["reason"], record["sent"], record["seconds"]) == ("gone", 2, 5.0)
    assert (record["tenant_id"], record["service_call_id"]) == ("acme", call_id)


def test_a_client_that_was_gone_before_costs_nothing(calls: CallWorld) -> None:
    client = Client(calls.path(calls.submitted()["id"], "events"))

    async def disconnected() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def script(streams: EventStreams) -> None:
        await streams(client.scope, disconnected, client.send)

    play(calls, script)
    assert client.status == 0


def test_a_client_that_does_not_read_is_left(calls: CallWorld) -> None:
    client = Client(calls.path(calls.submitted()["id"], "events"), reads=False)
    clock = VirtualClock(NOW)
    run_virtually(clock, client.ask(make_streams(calls, clock)))
    assert clock.elapsed_seconds == pytest.approx(2 * SETTINGS.send_seconds, abs=0.01)


def test_no_stream_is_for_ever(calls: CallWorld) -> None:
    """So a key that has ended is noticed: the client comes back and is asked for it again."""
    client = Client(calls.path(calls.submitted()["id"], "events"))
    clock = VirtualClock(NOW)
    run_virtually(clock, client.ask(make_streams(calls, clock)))
    assert SETTINGS.lifetime_seconds <= clock.elapsed_seconds <= SETTINGS.lifetime_seconds + 2
    assert client.ended
    assert "event: end" not in client.text


def test_there_is_room_for_so_many_and_again_when_one_ends(calls: CallWorld) -> None:
    path = calls.path(calls.submitted()["id"], "events")

    async def script(streams: EventStreams) -> None:
        first, second, third, fourth = (Client(path) for _ in range(4))
        tasks = [asyncio.create_task(client.ask(streams)) for client in (first, second)]
        await asyncio.sleep(1)
        await third.ask(streams)
        assert (third.status, json.loads(third.text)["code"]) == (503, "too_many_streams")
        assert third.response_headers["retry-after"]
        first.gone.set()
        await tasks[0]
        tasks.append(asyncio.create_task(fourth.ask(streams)))
        await asyncio.sleep(1)
        assert fourth.status == 200
        streams.stop()
        await asyncio.gather(*tasks)

    play(calls, script)


def test_no_tenant_takes_all_the_room(calls: CallWorld) -> None:
    of_acme, of_globex = (
        calls.path(calls.submitted(tenant=tenant)["id"], "events", tenant=tenant) for tenant in ("acme", "globex")
    )

    async def script(streams: EventStreams) -> None:
        first, second, other = Client(of_acme), Client(of_acme), Client(of_globex)
        tasks = [asyncio.create_task(first.ask(streams))]
        await asyncio.sleep(1)
        await second.ask(streams)
        assert (second.status, json.loads(second.text)["code"]) == (503, "too_many_streams")
        tasks.append(asyncio.create_task(other.ask(streams)))
        await asyncio.sleep(1)
        assert other.status == 200
        first.gone.set()
        await tasks[0]
        tasks.append(asyncio.create_task(Client(of_acme).ask(streams)))
        await asyncio.sleep(1)
        assert not tasks[-1].done()
        streams.stop()
        await asyncio.gather(*tasks)

    play(calls, script, settings=replace(SETTINGS, max_streams_per_tenant=1))


def test_a_stop_ends_all_streams_at_once(calls: CallWorld) -> None:
    path = calls.path(calls.submitted()["id"], "events")
    clients = [Client(path), Client(path), Client(path)]
    streams = make_streams(calls, VirtualClock(NOW))

    async def follow() -> None:
        following = asyncio.gather(*(client.ask(streams) for client in clients[:2]))
        await asyncio.gather(*(client.changed.wait() for client in clients[:2]))
        threading.Thread(target=streams.stop).start()
        await asyncio.wait_for(following, 20)
        await asyncio.wait_for(clients[2].ask(streams), 20)

    asyncio.run(follow())  # with a real loop: the stop comes from another thread
    assert all(client.ended and "event: end" not in client.text for client in clients)


def test_a_store_that_does_not_answer_is_asked_again(calls: CallWorld, caplog: pytest.LogCaptureFixture) -> None:
    call_id = calls.submitted()["id"]
    failures = iter(range(3))

    class Unreliable(Overlay):
        def list_events(self, *arguments: Any, **more: Any) -> Any:
            if next(failures, None) is not None:
                raise StoreUnavailable("not now")
            return calls.calls.list_events(*arguments, **more)

    store: Any = Unreliable(calls.calls)
    client = Client(calls.path(call_id, "events"))

    async def script(streams: EventStreams) -> None:
        stream = asyncio.create_task(client.ask(streams))
        await asyncio.sleep(0.1)
        calls.finish(call_id)
        await stream

    play(calls, script, store=store)
    assert client.types == SUBMITTED + EXECUTED
    actions = [getattr(record, "action", "") for record in caplog.records]
    assert actions.count("events.unread") == 3
