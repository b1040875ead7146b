"""Streams of events over real connections."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from duetime.app.api_keys import create_key
from duetime.domain.principals import Role
from tests.support.call_api import OTHER, TENANT, CallWorld, call_world
from tests.support.call_server import CallServer, call_server
from tests.support.no_tls import NO_TLS

STREAM = {"accept": "text/event-stream"}
SEVEN = list(range(1, 8))


@pytest.fixture
def calls() -> Iterator[CallWorld]:
    with call_world() as world:
        yield world


@pytest.fixture
def server(calls: CallWorld) -> Iterator[CallServer]:
    with call_server(calls) as server:
        yield server


class Stream:
    """What comes in on one connection, an event at a time."""

    def __init__(self, response: httpx.Response) -> None:
        self._lines = response.iter_lines()
        self.ids: list[int] = []
        self.end: Any = None

    def read(self, count: int = 1000) -> list[int]:
        """The sequence numbers of the next events, up to the end of the stream."""
        read: list[int] = []
        name = ""
        for line in self._lines:
            field, _, value = line.partition(": ")
            if field == "event":
                name = value
            elif field == "data" and name == "end":
                self.end = json.loads(value)["reason"]
            elif field == "data":
                read.append(json.loads(value)["sequence"])
                if len(read) == count:
                    break
        self.ids += read
        return read


def test_a_stream_is_followed_to_its_end(calls: CallWorld, server: CallServer) -> None:
    call_id = calls.submitted()["id"]
    with server.client.stream("GET", calls.path(call_id, "events"), headers=STREAM) as response:
        stream = Stream(response)
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert stream.read(2) == [1, 2]
        calls.begin(call_id)
        assert stream.read(3) == [3, 4, 5]
        calls.finish(call_id)
        assert stream.read() == [6, 7]
        assert stream.end == "finished"
    again = server.client.get(calls.path(call_id, "events"), headers=STREAM | {"last-event-id": "7"})
    assert (again.status_code, again.content) == (204, b"")


def test_requests_go_on_beside_more_streams_than_there_are_threads(calls: CallWorld, server: CallServer) -> None:
    call_id = calls.submitted()["id"]
    path = calls.path(call_id, "events")
    with httpx.Client(
        base_url=server.url, timeout=20, limits=httpx.Limits(max_connections=100), verify=NO_TLS
    ) as client:
        responses = [client.send(client.build_request("GET", path, headers=STREAM), stream=True) for _ in range(70)]
        streams = [Stream(response) for response in responses]
        assert all(stream.read(2) == [1, 2] for stream in streams)
        assert server.client.get(calls.path(call_id)).status_code == 200
        calls.finish(call_id)
        assert all(stream.read() == [3, 4, 5, 6, 7] for stream in streams)
        for response in responses:
            response.close()


def test_a_stop_does_not_wait_for_streams(calls: CallWorld, server: CallServer) -> None:
    path = calls.path(calls.submitted()["id"], "events")
    with server.client.stream("GET", path, headers=STREAM) as response:
        stream = Stream(response)
        stream.read(2)
        server.stop_and_wait()  # it would wait 10 s for a request
        assert stream.read() == []
        assert stream.end is None


def test_a_stream_needs_the_key_that_the_list_needs(calls: CallWorld) -> None:
    path = calls.path(calls.submitted()["id"], "events")
    keys = {
        tenant: create_key(
            calls.store,
            key_id=tenant,
            tenant_id=tenant,
            role=Role.READER,
            name="",
            expires_at=None,
            now=calls.clock.now(),
        ).text
        for tenant in (TENANT, OTHER)
    }
    with call_server(calls, with_auth=True) as server:

        def status(**headers: str) -> int:
            with server.client.stream("GET", path, headers=STREAM | headers) as response:
                if response.status_code == 200:
                    assert Stream(response).read(2) == [1, 2]
                return response.status_code

        assert status() == 401
        assert status(authorization=f"Bearer {keys[OTHER]}") == 404
        assert status(authorization=f"Bearer {keys[TENANT]}") == 200
