"""Commands that speak to a server: timers, namespaces, secrets, keys, the event webhook, and the server itself."""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from duetime.cli import tables
from duetime.cli.main import run
from duetime.domain.timers import TimerState
from tests.support.call_api import TENANT, URL, CallWorld, call_world
from tests.support.call_server import call_server
from tests.support.clock import NOW

Command = Callable[..., str]


@pytest.fixture
def world() -> Iterator[CallWorld]:
    with call_world() as world:
        world.store.catalogue.create_namespace("orders", num_shards=1, dedicated=False, now=NOW)
        yield world


@pytest.fixture
def command(
    world: CallWorld, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Command]:
    """Runs a command, which must end with ``code``: standard output, and after a failure standard error."""
    with call_server(world) as server:
        monkeypatch.setenv("DUETIME_URL", server.url)
        monkeypatch.setenv("DUETIME_TENANT", TENANT)
        monkeypatch.setenv("DUETIME_LOG_LEVEL", "error")  # the server is in this process

        def execute(*words: str, code: int = 0, stdin: str = "") -> str:
            monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
            ended = run(words)
            output = capsys.readouterr()
            assert ended == code, output.err
            return output.out if code == 0 else output.out + output.err

        yield execute


def timer(world: CallWorld, timer_id: str) -> Any:
    namespace = world.store.catalogue.get_namespace("orders")
    assert namespace is not None
    return world.store.timers.get(namespace, timer_id, now=NOW)


# -- timers --------------------------------------------------------------------------------------------------------


def test_a_timer_is_created_shown_changed_cancelled_and_removed(world: CallWorld, command: Command) -> None:
    everything = [
        *("--payload", '{"n": 1.10}', "--header", "A: b", "--tag", "x", "--retry-policy", '{"maxAttempts": 2}'),
        *("--timeout-seconds", "7", "--expire-after", "1h", "--correlation-id", "c"),
    ]
    assert command("timers", "create", "orders", URL, "--id", "a", "--delay", "1h", *everything) == "a\n"
    created = timer(world, "a")
    assert (created.content.payload_json, created.content.tags, created.content.correlation_id) == (
        '{"n": 1.10}',
        ("x",),
        "c",
    )

    assert "callback url" in command("timers", "show", "orders", "a")
    assert json.loads(command("timers", "show", "orders", "a", "--json"))["retryPolicy"]["maxAttempts"] == 2
    assert [line.split()[0] for line in command("timers", "list", "orders").splitlines()] == ["ID", "a"]
    assert [json.loads(line)["id"] for line in command("timers", "list", "orders", "--json").splitlines()] == ["a"]

    command("timers", "update", "orders", "a", "--payload", "2", "--clear", "tags", "--clear", "correlation-id")
    changed = timer(world, "a")
    assert (changed.content.payload_json, changed.content.tags, changed.content.correlation_id) == ("2", (), None)
    assert "HTTP 412" in command("timers", "update", "orders", "a", "--payload", "3", "--if-revision", "1", code=1)

    command("timers", "put", "orders", "a", URL, "--execute-at", "2026-12-24T18:00:00Z")
    assert timer(world, "a").content.payload_json is None
    command("timers", "fire", "orders", "a")
    assert timer(world, "a").next_attempt_at == world.clock.now()
    assert "NUMBER" in command("timers", "attempts", "orders", "a")
    assert "HTTP 409" in command("timers", "redrive", "orders", "a", code=1)
    assert "Cancelled" in command("timers", "cancel", "orders", "a")
    assert timer(world, "a").state is TimerState.CANCELLED
    command("timers", "delete", "orders", "a")
    assert "does not exist" in command("timers", "delete", "orders", "a", code=1)


def test_without_an_id_a_timer_gets_one(world: CallWorld, command: Command) -> None:
    timer_id = command("timers", "create", "orders", URL, "--delay", "1h").strip()
    assert timer(world, timer_id).state is TimerState.SCHEDULED


def test_many_timers_come_from_lines_of_json(world: CallWorld, command: Command, tmp_path: Path) -> None:
    lines = [
        json.dumps({"id": "a", "delay": "1h", "callbackUrl": URL}),
        "",
        f'{{"delay":"1h","callbackUrl":"{URL}","payload":1.10}}',
        json.dumps({"id": "bad", "delay": "soon", "callbackUrl": URL}),
    ]
    file = tmp_path / "timers.jsonl"
    file.write_text("\n".join(lines), encoding="utf-8")

    shown = command("timers", "create-batch", "orders", str(file), code=1)

    first, second, refused = shown.splitlines()
    assert first == "a"
    assert timer(world, second).content.payload_json == "1.10"
    assert refused.startswith("line 4: bad: ")
    assert "delay" in refused
    items = command("timers", "create-batch", "orders", "--json", stdin=lines[0])
    assert [json.loads(line)["status"] for line in items.splitlines()] == [200]
    command("timers", "create-batch", "orders", "--spread", "10m", stdin=lines[0].replace('"a"', '"spread"'))
    later = timer(world, "spread").content.execute_at - timer(world, "a").content.execute_at
    assert timedelta() < later < timedelta(minutes=10)

    cancels = f'{{"id":"a","revision":9}}\n"{second}"\n'
    refused, done = sorted(command("timers", "cancel-batch", "orders", stdin=cancels, code=1).splitlines())[::-1]
    assert (done, refused.startswith("line 1: a: ")) == (second, True)
    assert (timer(world, "a").state, timer(world, second).state) == (TimerState.SCHEDULED, TimerState.CANCELLED)
    assert command("timers", "delete-batch", "orders", stdin=f'"{second}"\n') == f"{second}\n"


@pytest.mark.parametrize("line", ["{", "7", '"text"'])
def test_lines_that_are_no_timers_are_told(command: Command, line: str) -> None:
    shown = command("timers", "create-batch", "orders", stdin=f"\n{line}\n", code=2)
    assert "line 2: " in shown or "timers[0]" in shown


# -- service calls ---------------------------------------------------------------------------------------------------


def test_a_service_call_is_changed(world: CallWorld, command: Command) -> None:
    call_id = command("calls", "submit", URL, "--delay", "1h").strip()
    words = ["--name", "new", "--target", f"{URL}/2", "--method", "PUT", "--body-json", "1.10", "--delay", "2h"]
    assert "new" in command("calls", "update", call_id, *words)
    call = world.call(call_id)
    assert (call.name, call.request.url, call.request.body_json) == ("new", f"{URL}/2", "1.10")
    assert "HTTP 412" in command("calls", "update", call_id, "--name", "x", "--if-revision", "1", code=1)


# -- the event webhook -----------------------------------------------------------------------------------------------


def test_the_event_webhook_is_set_shown_and_removed(command: Command) -> None:
    command("webhook", "set", "https://example.com/events", "--type", "ServiceCallFailed", "--disabled")
    shown = json.loads(command("webhook", "show", "--json"))
    assert (shown["eventTypes"], shown["enabled"]) == (["ServiceCallFailed"], False)
    assert "ServiceCallFailed" in command("webhook", "show")
    assert command("webhook", "deliveries", "--state", "Failed", "--json") == ""
    assert command("webhook", "redrive") == "0 redriven, 0 skipped\n"
    assert "1 skipped" in command("webhook", "redrive", "--delivery-id", "x", code=1)
    assert "cannot be combined with filters" in command(
        "webhook", "redrive", "--delivery-id", "x", "--tag", "y", code=2
    )
    assert "HTTP 404" in command("webhook", "attempts", "x", code=1)
    command("webhook", "delete")
    assert "HTTP 404" in command("webhook", "show", code=1)


# -- the server ------------------------------------------------------------------------------------------------------


def test_the_server_tells_of_itself(command: Command) -> None:
    assert "status" in command("health")
    assert json.loads(command("health", "--json"))["status"] == "ok"
    assert json.loads(command("openapi"))["openapi"].startswith("3.1")
    assert command("shards").startswith("SHARD")
    assert {json.loads(line)["shardId"] for line in command("shards", "--json").splitlines()} >= {0}
    assert command("whoami") == "the server requires no API key\n"


# -- the terminal ----------------------------------------------------------------------------------------------------


def test_a_table_fits_the_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    at = "2026-11-29T08:19:22.206Z"
    rows = [("ID", "AT", "NAME", "MESSAGE"), ("a" * 24, at, "n" * 40, "m" * 60)]
    tables.show_table(rows)
    assert max(map(len, capsys.readouterr().out.splitlines())) == 24 + 2 + 24 + 2 + 40 + 2 + 60
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((80, 24)))
    tables.show_table(rows)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) == 80
    assert lines[1].startswith(f"{'a' * 24}  {at}  nnn")
    assert lines[1].endswith("mmm...")


@pytest.mark.parametrize(
    ("columns", "shown"),
    [
        (90, "{id}  Cancelled  2026-11-29T08:19:22.206Z  Network"),
        (80, "{id}  Cancelled  2026-11-29T08:19:22Z  Network"),
        (60, "{id}  Cancelled  2026-11-29T08:19Z  Network"),
    ],
)
def test_where_there_is_little_room_a_table_still_says_what_and_when(
    columns: int, shown: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    timer_id = "0193e5a1-7c00-7abc-8def-0123456789ab"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((columns, 24)))

    tables.show_table(
        [("ID", "STATE", "AT", "REASON"), (timer_id, "Cancelled", "2026-11-29T08:19:22.206Z", "Network")]
    )

    line = capsys.readouterr().out.splitlines()[1]
    assert re.sub(" {3,}", "  ", line) == shown.format(id=timer_id)
