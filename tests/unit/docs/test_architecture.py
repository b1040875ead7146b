"""The ways that docs/architecture.md lists are those that a timer takes, on SQLite."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from duetime.api.handler import build_handler
from duetime.testing.virtual_time import VirtualClock, run_virtually
from tests.support.api import context_for
from tests.support.clock import NOW as START
from tests.support.clock import FakeClock
from tests.support.engine import make_poller, make_timer, put, running
from tests.support.http import Api
from tests.support.scripted_sender import ScriptedSender
from tests.support.stores import memory_store
from tests.support.tracing import file_of, traced

PAGE = Path(__file__).parents[3] / "docs/architecture.md"
STORES = "stores/"
"""Stands for all of its files: which they are is up to each kind of database."""


def listed(heading: str) -> set[str]:
    """The files of the numbered list under ``heading``."""
    section = re.split(r"^#+ ", PAGE.read_text(encoding="utf-8").split(f"# {heading}\n")[1], flags=re.MULTILINE)[0]
    items = "\n".join(re.findall(r"^\d+\. .*(?:\n   .*)*", section, re.MULTILINE))
    return set(re.findall(r"`([\w/]+(?:\.py|/))`", items))


def files_of(entered: set[CodeType]) -> set[str]:
    files = {file_of(code) for code in entered}
    return {STORES if file.startswith(STORES) else file for file in files}


def functions_of_a_poller(timers: int) -> set[CodeType]:
    """Those that a poller enters while it has ``timers`` to fire and record, and has had one before."""
    clock = VirtualClock(START)
    with memory_store() as store:
        store.catalogue.create_namespace("default", num_shards=4, dedicated=False, now=START)
        poller = make_poller(store, ScriptedSender(), clock)
        entered: set[CodeType] = set()

        async def script() -> None:
            put(store, [make_timer("the-first", execute_at=START + timedelta(seconds=3))], clock.now())
            await asyncio.sleep(5)
            due = START + timedelta(seconds=8)
            put(store, [make_timer(str(number), execute_at=due) for number in range(timers)], clock.now())
            with traced() as functions:
                await asyncio.sleep(5)
            entered.update(functions)

        run_virtually(clock, running(poller, script))
        assert poller.stats()["fired"] == timers + 1
        return entered


@pytest.fixture(autouse=True)
def without_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests of this process may have set up the product's own, whose functions would count."""
    monkeypatch.setattr(logging.root, "handlers", [])


def test_the_way_of_a_timer_that_is_fired_and_recorded() -> None:
    idle = functions_of_a_poller(0)
    assert sorted(listed("Fired and recorded")) == sorted(files_of(functions_of_a_poller(1) - idle))


def test_the_way_of_a_timer_that_is_created_over_http() -> None:
    clock = FakeClock()
    entered: list[set[CodeType]] = []
    with memory_store() as store:
        store.catalogue.create_namespace("default", num_shards=4, dedicated=False, now=clock.now())
        handler = build_handler(context_for(store, clock))

        def tracing(event: Mapping[str, Any], context: Any) -> dict[str, Any]:
            with traced() as functions:
                result = handler(event, context)
            entered.append(set(functions))
            return result

        api = Api(tracing)
        timer = {"executeAt": "2030-01-01T00:00:00Z", "callbackUrl": "https://a.example/x", "payload": {"a": 1}}
        for timer_id in ("the-first", "traced"):  # the first fills caches
            assert api.put(timer_id, timer).status == 201
    assert sorted(listed("Created over HTTP")) == sorted(files_of(entered[-1]))
