from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.api import World, api_world
from tests.support.call_api import CallWorld, call_world
from tests.support.http import Api


@pytest.fixture
def world() -> Iterator[World]:
    with api_world() as world:
        yield world


@pytest.fixture
def api(world: World) -> Api:
    return world.api


@pytest.fixture
def calls() -> Iterator[CallWorld]:
    with call_world() as world:
        yield world
