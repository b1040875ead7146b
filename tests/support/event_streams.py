"""Clients of event streams in virtual time, without sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from duetime.local.event_streams import Authenticator, EventStreams, StreamSettings
from duetime.local.gateway import HttpRequest, HttpResponse, from_result, to_event
from duetime.stores.core.calls import CallStore
from duetime.testing.virtual_time import InlineOffload, VirtualClock, run_virtually
from tests.support.call_api import CallWorld
from tests.support.clock import NOW

SETTINGS = StreamSettings(max_streams=2)


class InPlace:
    """The part of ``LambdaAsgiApp`` that is used, without its threads."""

    def __init__(self, world: CallWorld) -> None:
        self._world = world
        self.others = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.others += 1

    async def respond(self, scope: Any, receive: Any) -> HttpResponse | None:
        if (await receive())["type"] == "http.disconnect":
            return None
        return from_result(self._world.api._handler(to_event(request_of(scope)), None))


def request_of(scope: Any) -> HttpRequest:
    return HttpRequest(
        method=scope["method"],
        raw_path=scope["path"],
        raw_query=scope["query_string"].decode(),
        headers=tuple((name.decode(), value.decode()) for name, value in scope["headers"]),
        body=b"",
        http_version="1.1",
        client_host="",
        request_id="r1",
        received_at=NOW,
    )


@dataclass
class Client:
    """One request for events, and what came of it."""

    path: str
    query: str = ""
    headers: dict[str, str] = field(default_factory=lambda: {"accept": "text/event-stream"})
    reads: bool = True
    status: int = 0
    response_headers: dict[str, str] = field(default_factory=dict)
    chunks: list[tuple[float, str]] = field(default_factory=list)
    ended: bool = False
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def scope(self) -> dict[str, Any]:
        headers = [(name.encode(), value.encode()) for name, value in self.headers.items()]
        return {
            "type": "http",
            "method": "GET",
            "path": self.path,
            "query_string": self.query.encode(),
            "headers": headers,
        }

    def receive(self) -> Callable[[], Awaitable[dict[str, Any]]]:
        first = iter([{"type": "http.request", "body": b"", "more_body": False}])

        async def receive() -> dict[str, Any]:
            for message in first:
                return message
            await self.gone.wait()
            return {"type": "http.disconnect"}

        return receive

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.response_headers = {name.decode(): value.decode() for name, value in message["headers"]}
            return
        if not self.reads:
            await asyncio.Event().wait()
        if message["body"]:
            self.chunks.append((asyncio.get_running_loop().time(), message["body"].decode()))
        self.ended = not message.get("more_body", False)
        self.changed.set()

    async def ask(self, streams: EventStreams) -> None:
        await streams(self.scope, self.receive(), self.send)

    @property
    def text(self) -> str:
        return "".join(text for _, text in self.chunks)

    @property
    def events(self) -> list[dict[str, Any]]:
        """Those of the call, checked for their form."""
        found = []
        for block in self.text.split("\n\n"):
            if block.startswith("id:"):
                first, second, third = block.split("\n")
                event = json.loads(third.removeprefix("data: "))
                assert (first, second) == (f"id: {event['sequence']}", f"event: {event['type']}")
                found.append(event)
        return found

    @property
    def types(self) -> list[str]:
        return [event["type"] for event in self.events]


def make_streams(
    world: CallWorld,
    clock: VirtualClock,
    *,
    store: CallStore | None = None,
    authenticator: Authenticator | None = None,
    settings: StreamSettings = SETTINGS,
) -> EventStreams:
    return EventStreams(
        InPlace(world),
        store or world.calls,
        clock=clock,
        offload=InlineOffload(),
        authenticator=authenticator,
        settings=settings,
    )


Script = Callable[[EventStreams], Awaitable[None]]


def play(world: CallWorld, script: Script, **more: Any) -> None:
    clock = VirtualClock(NOW)

    async def main() -> None:
        await asyncio.wait_for(script(make_streams(world, clock, **more)), 3600)

    run_virtually(clock, main())
