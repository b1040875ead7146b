"""The API of service calls over HTTP, with streams, on a store of the test: uvicorn as `duetime serve` runs it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import httpx

from duetime.api.handler import build_handler
from duetime.api.http.authentication import KeyAuthenticator
from duetime.api.routes import all_routes
from duetime.engine.waiting import ThreadOffload
from duetime.local.asgi import LambdaAsgiApp
from duetime.local.event_streams import EventStreams, StreamSettings
from duetime.local.http import bind, http_service, url_of
from duetime.runtime.ids import new_id
from tests.support.call_api import CallWorld
from tests.support.no_tls import NO_TLS

WAIT_SECONDS = 30.0
DEFAULT = StreamSettings()


@dataclass(frozen=True)
class CallServer:
    """``stop`` ends it in good order and waits for that."""

    world: CallWorld
    url: str
    client: httpx.Client
    stop: threading.Event
    stopped: threading.Event

    def stop_and_wait(self) -> None:
        self.stop.set()
        assert self.stopped.wait(WAIT_SECONDS)


@contextmanager
def call_server(
    world: CallWorld, *, with_auth: bool = False, settings: StreamSettings = DEFAULT
) -> Iterator[CallServer]:
    context = world.context
    authenticator = KeyAuthenticator(world.store.catalogue, world.clock, cache_seconds=0) if with_auth else None
    context = replace(context, authenticate=authenticator)
    started, stop, stopped = threading.Event(), threading.Event(), threading.Event()
    offload = ThreadOffload(2, "test-streams")
    api = LambdaAsgiApp(build_handler(context, all_routes()), clock=world.clock, new_id=new_id)
    streams = EventStreams(
        api, world.calls, clock=world.clock, offload=offload, authenticator=authenticator, settings=settings
    )
    with bind("127.0.0.1", 0) as listener:
        service = http_service(streams, listener, started.set, on_stopping=streams.stop)

        def serve() -> None:
            service.work()
            stopped.set()

        def stop_when_told() -> None:
            stop.wait()
            service.request_stop()

        threads = [threading.Thread(target=serve), threading.Thread(target=stop_when_told)]
        for thread in threads:
            thread.start()
        try:
            assert started.wait(WAIT_SECONDS)
            url = url_of(listener)
            with httpx.Client(base_url=url, timeout=WAIT_SECONDS, verify=NO_TLS) as client:
                yield CallServer(world, url, client, stop, stopped)
        finally:
            stop.set()
            for thread in threads:
                thread.join(WAIT_SECONDS)
            offload.close()
