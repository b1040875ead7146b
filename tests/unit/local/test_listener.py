from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import httpx
import pytest

from duetime.delivery.request import callback_for
from duetime.delivery.signing import Signer
from duetime.domain.namespaces import Namespace
from duetime.domain.secrets import secret_text
from duetime.domain.timers import Timer
from duetime.local.listener import Listener, Reply, describe
from duetime.testing.contract.builders import make_namespace, make_timer
from duetime.testing.contract.schedules import make_schedule
from tests.support.clock import NOW, FakeClock

CALLBACK = {
    "namespace": "default",
    "timerId": "order-42",
    "executeAt": "2026-12-20T15:29:59.996Z",
    "firedAt": "2026-12-20T15:29:59.999Z",
    "attempt": 1,
    "payload": {"köln": [1, 2.50, None]},
}


def shown(body: bytes, *, headers: list[tuple[str, str]] | None = None, reply: Reply | None = None) -> list[str]:
    text = describe("#1", headers or [], body, received_at=NOW, reply=reply or Reply())
    return [line.strip() for line in text.splitlines()]


def test_a_callback_is_shown_with_its_lateness() -> None:
    headers = [("host", "x"), ("webhook-id", "msg_1"), ("x-correlation-id", "c-1")]
    assert shown(json.dumps(CALLBACK).encode(), headers=headers, reply=Reply(503, '{"ok": false}')) == [
        "#1",
        "timer    default/order-42",
        "attempt  1",
        "due      2026-12-20T15:29:59.996Z, 4 ms ago",
        'payload  {"köln": [1, 2.5, null]}',
        "header   webhook-id: msg_1",
        "header   x-correlation-id: c-1",
        'response 503 {"ok": false}',
    ]


def test_the_url_for_an_answer_is_shown() -> None:
    assert shown(json.dumps(CALLBACK | {"ackUrl": "https://x.test/ack?a=1"}).encode())[5] == (
        "ackUrl   https://x.test/ack?a=1"
    )


def test_a_callback_of_a_schedule_names_the_occurrence() -> None:
    callback = callback_for(make_schedule(make_namespace("default"), "daily"), key=1, fired_at=NOW)

    lines = shown(callback.body or b"")

    assert lines[1] == "schedule default/daily, occurrence 1 of 2026-12-20T15:30:00.000Z"


@pytest.mark.parametrize(
    "body",
    [b"", b"hello", b"[1]", b"\xff", b'{"namespace": "x"}', json.dumps(CALLBACK | {"executeAt": "soon"}).encode()],
)
def test_anything_else_is_shown_as_it_is(body: bytes) -> None:
    assert shown(body)[1].startswith("body")


def test_nothing_shown_can_move_the_cursor_or_forge_a_line() -> None:
    lines = shown(json.dumps(CALLBACK | {"payload": "\x1b[2J\x9b\nforged"}).encode() + b"\n")
    assert len(lines) == 6
    assert all(line.isprintable() for line in lines)


def test_a_large_payload_is_cut() -> None:
    lines = shown(json.dumps(CALLBACK | {"payload": "x" * 100_000}).encode())
    assert lines[4].endswith("(100002 characters)")
    assert len(lines[4]) < 5000


def test_requests_are_numbered_and_answered_as_asked() -> None:
    blocks: list[str] = []
    clock = FakeClock(NOW + timedelta(milliseconds=4))
    listener = Listener(Reply(503, '{"ok": false}'), clock=clock, show=blocks.append)

    async def send() -> list[httpx.Response]:
        transport = httpx.ASGITransport(listener)
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            return [await client.post("/hook", json=CALLBACK), await client.post("/", content=b"x" * 2_000_000)]

    first, second = asyncio.run(send())
    assert (first.status_code, first.json()) == (503, {"ok": False})
    assert second.status_code == 413
    assert blocks[0].startswith("#1  2026-12-20T15:30:00.004Z  POST /hook\n")
    assert "8 ms ago" in blocks[0]
    assert blocks[1].startswith("#2 ")


def test_lifespan() -> None:
    sent: list[Any] = []

    async def drive() -> None:
        async def receive() -> dict[str, Any]:
            return {}

        async def send(message: Any) -> None:
            sent.append(message["type"])

        await Listener(Reply(), clock=FakeClock(), show=print)({"type": "lifespan"}, receive, send)

    asyncio.run(drive())
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


@pytest.mark.parametrize(
    ("key", "body", "judgement"),
    [
        (b"a" * 32, b"", "valid"),
        (b"b" * 32, b"", "valid"),
        (b"c" * 32, b"", "NOT VALID: no signature was made with a secret that is known here"),
        (b"a" * 32, b" ", "NOT VALID: no signature was made with a secret that is known here"),
        (None, b"", "NOT VALID: there is no webhook-id"),
    ],
)
@pytest.mark.parametrize("make", [make_timer, make_schedule])
def test_signatures_are_judged_when_there_are_secrets(
    make: Callable[[Namespace], Timer], key: bytes | None, body: bytes, judgement: str
) -> None:
    blocks: list[str] = []
    secrets = [secret_text(b"a" * 32), secret_text(b"b" * 32)]
    listener = Listener(Reply(), clock=FakeClock(), show=blocks.append, secrets=secrets)
    callback = callback_for(make(make_namespace()), key=1, fired_at=NOW, signer=Signer((key or b"x",)))
    headers = dict(line.split(": ", 1) for line in callback.headers) if key else {}

    async def send() -> None:
        transport = httpx.ASGITransport(listener)
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            await client.post("/hook", content=(callback.body or b"") + body, headers=headers)

    asyncio.run(send())
    assert f"    signed   {judgement}\n" in blocks[0]


def test_without_secrets_nothing_is_said_of_signatures() -> None:
    assert not any(line.startswith("signed") for line in shown(json.dumps(CALLBACK).encode()))
