"""The routes that move a virtual clock, and what does not go with one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from duetime.api.http.errors import AdvanceUnfinished
from duetime.api.http.problems import status_of
from duetime.cli.main import run
from duetime.runtime.settings import LocalSettings
from duetime.testing.receiver import Receiver
from duetime.testing.server import handler_with_clock, in_memory_alone
from duetime.testing.service import VirtualService, virtual_service
from duetime.testing.transport import HandlerTransport
from duetime.testing.virtual_time import SteppedLoop, VirtualClock
from tests.support.api import api_world
from tests.support.clock import NOW

URL = "https://app.example.com/hook"


@contextmanager
def served(receiver: Receiver, clock: VirtualClock) -> Iterator[tuple[VirtualService, httpx.Client]]:
    settings = in_memory_alone(LocalSettings())
    with virtual_service(
        settings,
        clock,
        receiver,
        is_sending=False,
        make_handler=lambda service, context: handler_with_clock(service, context, settings),
    ) as service:
        thread = threading.Thread(target=service.run)
        thread.start()
        service.wait_until_started()
        transport = HandlerTransport(service.handler, service.now)
        try:
            with httpx.Client(transport=transport, base_url="http://duetime.test") as client:
                yield service, client
        finally:
            service.stop()
            thread.join()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(NOW)


@pytest.fixture
def receiver(clock: VirtualClock) -> Receiver:
    return Receiver(clock)


@pytest.fixture
def client(receiver: Receiver, clock: VirtualClock) -> Iterator[httpx.Client]:
    with served(receiver, clock) as (_, client):
        yield client


def create(client: httpx.Client, **body: Any) -> None:
    answer = client.post("/v1/namespaces/default/timers", json={"callbackUrl": URL} | body)
    assert answer.status_code == 201, answer.text


def test_an_advance_answers_with_the_time_and_the_attempts(client: httpx.Client, receiver: Receiver) -> None:
    create(client, delay="PT1H")
    create(client, delay="PT3H")
    assert client.get("/v1/clock").json() == {"now": "2026-12-20T15:30:00.000Z"}

    answer = client.post("/v1/clock/advance", json={"by": "PT2H"})

    assert (answer.status_code, answer.json()) == (200, {"now": "2026-12-20T17:30:00.000Z", "attempts": 1})
    answer = client.post("/v1/clock/advance", json={"to": "2026-12-20T19:30:00+01:00"})
    assert answer.json() == {"now": "2026-12-20T18:30:00.000Z", "attempts": 1}
    assert client.get("/v1/clock").json() == {"now": "2026-12-20T18:30:00.000Z"}
    assert len(receiver.requests) == 2


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"by": "1h", "to": "2026-12-21T00:00:00Z"},
        {"by": "-1s"},
        {"by": None},
        {"at": 1},
        {"to": "2026-12-20T15:29:59.999Z"},
        {"to": "9999-12-31T23:59:59.9999Z"},
    ],
)
def test_an_advance_that_cannot_be_is_a_400(client: httpx.Client, body: dict[str, Any]) -> None:
    answer = client.post("/v1/clock/advance", json=body)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_input")
    assert client.get("/v1/clock").json() == {"now": "2026-12-20T15:30:00.000Z"}


def test_an_advance_that_takes_too_long_says_where_time_stands_and_can_go_on() -> None:
    clock = VirtualClock(NOW)
    receiver, go_on = Receiver(clock), threading.Event()
    receiver.answer(lambda request: 200 if go_on.wait(60) else 500)
    with served(receiver, clock) as (service, client):
        for hours in (1, 2, 3):
            create(client, delay=f"PT{hours}H")

        with pytest.raises(AdvanceUnfinished, match=r"the clock stands at 2026-12-20T1[56]:30:00.000Z") as raised:
            service.advance(NOW + timedelta(hours=4), timeout_seconds=0.1)

        assert status_of(raised.value) == 503
        go_on.set()
        service.settle()
        assert NOW <= service.now() <= NOW + timedelta(hours=1)
        service.advance(NOW + timedelta(hours=4))
        assert len(receiver.requests) == 3


def test_an_advance_that_is_being_cancelled_leaves_the_next_one_alone(clock: VirtualClock) -> None:
    loop = SteppedLoop(clock, lambda: False)

    async def advance_twice() -> None:
        first = asyncio.create_task(loop.advance(NOW + timedelta(hours=1)))
        await asyncio.sleep(0)
        second = asyncio.create_task(loop.advance(NOW + timedelta(hours=2)))
        first.cancel()  # reaches it when the second has begun
        await second

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(advance_twice())
    assert clock.now() == NOW + timedelta(hours=2)


def test_a_real_clock_is_not_moved_and_the_answer_says_how_to_get_another() -> None:
    with api_world() as world:
        for answer in (world.api.get("/v1/clock"), world.api.call("POST", "/v1/clock/advance", {"by": "1h"})):
            assert (answer.status, answer.code) == (404, "route_not_found")
            assert "duetime serve --clock virtual" in answer.json()["detail"]
        assert "/v1/clock" not in world.api.get("/v1/openapi.json").text


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--clock", "virtual", "--store", "sqlite:///kept.db"), "--clock"),
        (("--clock", "virtual", "--store", "postgresql://localhost/kept"), "--clock"),
        (("--clock", "virtual", "--workers", "2"), "--workers"),
        (("--clock", "virtual", "--auth"), "--auth"),
        (("--clock", "virtual", "--start", "tomorrow"), "--start"),
        (("--start", "2026-01-01T00:00:00Z"), "--start"),
        (("--clock", "sun"), "--clock"),
    ],
)
def test_what_does_not_go_with_a_virtual_clock_is_refused(
    options: tuple[str, ...],
    named: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["serve", "--port", "0", *options]) == 2
    assert f"duetime: error: {named}:" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
