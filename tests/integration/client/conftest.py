from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from duetime.runtime.local_key import LocalSecretBox, ProcessKey
from tests.support.call_api import CallWorld, call_world
from tests.support.call_server import CallServer, call_server
from tests.support.clients import FORMS, Connect, connecting


@pytest.fixture
def world() -> Iterator[CallWorld]:
    """Behind the server: a store in memory and a clock that stands still. Nobody polls."""
    with call_world() as made:
        context = replace(made.context, secret_box=LocalSecretBox(ProcessKey()))
        context.store.catalogue.create_namespace("default", num_shards=4, dedicated=False, now=made.clock.now())
        yield replace(made, context=context)


@pytest.fixture
def server(world: CallWorld) -> Iterator[CallServer]:
    with call_server(world) as server:
        yield server


@pytest.fixture(params=FORMS)
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    with connecting(request.param) as connect:
        yield connect
