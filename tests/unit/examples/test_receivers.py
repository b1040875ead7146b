"""The examples for receivers, run for real: what they do with a callback, a second one, and a forged one."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
import httpx
import pytest
from moto import mock_aws

from duetime.delivery.request import callback_for
from duetime.delivery.signing import Signer
from duetime.domain.secrets import secret_text
from duetime.testing.contract.builders import make_namespace, make_timer
from tests.support.processes import ROOT

OLD_KEY, KEY, FORGED_KEY = (bytes([number]) * 32 for number in (1, 2, 3))
PATH = "/hooks/reminders"
TABLE = "reminders"

Sent = tuple[bytes, dict[str, str]]
Post = Callable[[Sent], int]
"""Gives a callback to the receiver; the status of its answer."""


def callback(timer_id: str = "t1", *, firing_id: str = "f1", key: bytes = KEY) -> Sent:
    now = datetime.now(UTC)
    timer = make_timer(make_namespace(), timer_id, firing_id=firing_id, payload_json='{"text": "Grüße"}')
    sent = callback_for(timer, key=1, fired_at=now, signer=Signer((key,)))
    return sent.body or b"", dict(line.split(": ", 1) for line in sent.headers)


class Receiver:
    """``done`` has what the receiver did: (timer id, payload)."""

    def __init__(self, post: Post, done: Callable[[], list[tuple[str, Any]]]) -> None:
        self.post = post
        self.done = done


def _done_in(database: Path) -> list[tuple[str, Any]]:
    with closing(sqlite3.connect(database)) as connection:
        rows = connection.execute("SELECT timer_id, payload FROM reminders ORDER BY timer_id").fetchall()
    return [(timer_id, json.loads(payload)) for timer_id, payload in rows]


def _fastapi(database: Path) -> Receiver:
    from examples.receivers.fastapi_receiver import create_app

    app = create_app()

    async def send(sent: Sent) -> int:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://receiver.test") as client:
            return (await client.post(PATH, content=sent[0], headers=sent[1])).status_code

    return Receiver(lambda sent: asyncio.run(send(sent)), lambda: _done_in(database))


def _flask(database: Path) -> Receiver:
    from examples.receivers.flask_receiver import create_app

    app = create_app()
    return Receiver(
        lambda sent: app.test_client().post(PATH, data=sent[0], headers=sent[1]).status_code,
        lambda: _done_in(database),
    )


def _lambda() -> Receiver:
    from examples.receivers.lambda_receiver import lambda_handler

    client = boto3.client("dynamodb")
    client.create_table(
        TableName=TABLE,
        AttributeDefinitions=[{"AttributeName": "webhook_id", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "webhook_id", "KeyType": "HASH"}],
        BillingMode="PAY_PER_REQUEST",
    )

    def post(sent: Sent) -> int:
        body, headers = sent
        answers = []
        for content, is_encoded in ((body.decode(), False), (base64.b64encode(body).decode(), True)):
            event = {
                "headers": {name.lower(): value for name, value in headers.items()},
                "body": content,
                "isBase64Encoded": is_encoded,
            }
            answers.append(lambda_handler(event, None)["statusCode"])
        assert len(set(answers)) == 1
        return int(answers[0])

    def done() -> list[tuple[str, Any]]:
        items = client.scan(TableName=TABLE)["Items"]
        return sorted((item["timer_id"]["S"], json.loads(item["payload"]["S"])) for item in items)

    return Receiver(post, done)


@pytest.fixture(params=["fastapi", "flask", "lambda"])
def receiver(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    database = tmp_path / "receiver.db"
    for name, value in {
        "WEBHOOK_SECRETS": f"{secret_text(OLD_KEY)} {secret_text(KEY)}",
        "RECEIVER_DATABASE": str(database),
        "TABLE": TABLE,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
    }.items():
        monkeypatch.setenv(name, value)
    if request.param == "lambda":
        with mock_aws():
            yield _lambda()
    else:
        yield _fastapi(database) if request.param == "fastapi" else _flask(database)


@pytest.mark.parametrize("key", [OLD_KEY, KEY])
def test_the_work_of_a_callback_is_done(receiver: Receiver, key: bytes) -> None:
    assert receiver.post(callback(key=key)) == 204
    assert receiver.done() == [("t1", {"text": "Grüße"})]


def test_a_second_attempt_is_answered_and_not_done_again(receiver: Receiver) -> None:
    assert [receiver.post(callback()), receiver.post(callback())] == [204, 204]
    assert len(receiver.done()) == 1


def test_another_firing_is_done(receiver: Receiver) -> None:
    receiver.post(callback(firing_id="f1"))
    receiver.post(callback(firing_id="f2"))
    receiver.post(callback("t2", firing_id="f3"))
    assert [timer_id for timer_id, _ in receiver.done()] == ["t1", "t1", "t2"]


@pytest.mark.parametrize("forge", ["key", "body", "header", "none"])
def test_what_is_forged_is_refused_for_good(receiver: Receiver, forge: str) -> None:
    body, headers = callback(key=FORGED_KEY if forge == "key" else KEY)
    if forge == "body":
        body = body.replace(b"t1", b"t2")
    elif forge == "header":
        headers["webhook-id"] = "f2"
    elif forge == "none":
        headers = {"content-type": "application/json"}

    assert receiver.post((body, headers)) == 400
    assert receiver.done() == []


@pytest.mark.parametrize("receiver", ["fastapi", "flask"], indirect=True)
def test_what_is_too_large_is_refused(receiver: Receiver) -> None:
    assert receiver.post((b"x" * (1024 * 1024 + 1), {})) == 413


@pytest.mark.parametrize("receiver", ["fastapi", "flask"], indirect=True)
def test_work_that_failed_is_tried_again(receiver: Receiver, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "receiver.db")) as connection:
        connection.execute("ALTER TABLE reminders RENAME TO gone")
        assert receiver.post(callback()) == 500
        connection.execute("ALTER TABLE gone RENAME TO reminders")

    assert receiver.post(callback()) == 204
    assert len(receiver.done()) == 1


@pytest.mark.parametrize("framework", ["fastapi", "flask"])
def test_what_it_says_to_install_is_what_it_imports(framework: str) -> None:
    source = (ROOT / f"examples/receivers/{framework}_receiver.py").read_text("utf-8")
    imported = set(re.findall(r"^(?:from|import) (\w+)", source, re.MULTILINE)) - sys.stdlib_module_names
    (installed,) = re.findall(r"pip install (.*)", source)

    assert {name.replace("_", "-") for name in imported} == set(installed.split()) - {"uvicorn"}
