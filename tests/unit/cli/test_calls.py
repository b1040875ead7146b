"""``duetime calls`` against a server on this machine."""

from __future__ import annotations

import io
import json
import re
import threading
from collections.abc import Callable, Iterator

import httpx
import pytest

from duetime.app.api_keys import create_key
from duetime.cli.main import run
from duetime.domain.principals import Role
from duetime.domain.service_calls import CallStatus
from duetime.domain.times import MAX_INSTANT
from tests.support.call_api import TENANT, URL, CallWorld, call_world
from tests.support.call_server import CallServer, call_server

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def calls() -> Iterator[CallWorld]:
    with call_world() as world:
        yield world


@pytest.fixture
def server(calls: CallWorld) -> Iterator[CallServer]:
    with call_server(calls) as server:
        yield server


@pytest.fixture
def command(server: CallServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs ``duetime calls ...`` for the tenant: exit code, standard output, standard error."""
    monkeypatch.setenv("DUETIME_URL", server.url)
    monkeypatch.setenv("DUETIME_TENANT", TENANT)
    monkeypatch.setenv("DUETIME_LOG_LEVEL", "error")  # the server is in this process

    def execute(*arguments: str, stdin: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        code = run(["calls", *arguments])
        output = capsys.readouterr()
        return code, output.out, output.err

    return execute


def submitted(command: Command, *arguments: str) -> str:
    code, out, err = command("submit", URL, *arguments)
    assert (code, err) == (0, "")
    return out.strip()


def test_many_calls_come_from_lines_of_json(calls: CallWorld, command: Command) -> None:
    call = {"name": "n", "request": {"method": "POST", "url": URL}, "delay": "1h"}
    lines = [
        json.dumps(call | {"idempotencyKey": "k"}),
        "",
        f'{{"name":"n","delay":"1h","request":{{"method":"POST","url":"{URL}","body":1.10}}}}',
        json.dumps(call | {"delay": "soon"}),
    ]
    code, out, err = command("submit-batch", stdin="\n".join(lines))
    first, second = out.splitlines()
    assert (code, calls.call(first).idempotency_key, calls.call(second).request.body_json) == (1, "k", "1.10")
    assert err.startswith("line 4: ")
    assert "delay" in err
    _, out, _ = command("submit-batch", "--json", stdin=lines[0])
    assert json.loads(out) == {"line": 1, "id": first, "status": 200, "error": None}

    code, out, err = command("cancel-batch", stdin=f'{{"id":"{first}","revision":9}}\n"{second}"\n')
    assert (code, out, err.startswith(f"line 1: {first}: ")) == (1, f"{second}\n", True)
    assert (calls.call(first).status, calls.call(second).status) == (CallStatus.SCHEDULED, CallStatus.CANCELLED)
    assert command("delete-batch", stdin=f'"{second}"\n') == (0, f"{second}\n", "")


# -- submit --------------------------------------------------------------------------------------------------------


def test_a_url_is_enough(calls: CallWorld, command: Command) -> None:
    code, out, _ = command("submit", f"{URL}?token=s3cret")
    assert code == 0
    call = calls.call(out.strip())
    assert (call.name, call.request.method, call.request.url) == (f"GET {URL}", "GET", f"{URL}?token=s3cret")
    assert (call.status, call.request.body_json, call.request.headers_json) == (CallStatus.SCHEDULED, None, None)


def test_everything_can_be_given(calls: CallWorld, command: Command) -> None:
    call_id = submitted(
        command,
        *("--name", "ünï", "--method", "PUT", "--header", "A: b: c", "--header", "X-B:"),
        *("--body-json", '{"n": 1.0, "big": 12345678901234567890}', "--delay", "1h", "--tag", "a", "--tag", "b"),
        *("--star", "--idempotency-key", "k", "--timeout-seconds", "7", "--correlation-id", "c"),
        *("--retry-policy", '{"maxAttempts": 3}'),
    )
    call = calls.call(call_id)
    assert json.loads(call.request.headers_json or "") == {"A": "b: c", "X-B": ""}
    assert call.request.body_json == '{"n": 1.0, "big": 12345678901234567890}'
    assert (call.name, call.tags, call.starred, call.idempotency_key) == ("ünï", ("a", "b"), True, "k")
    assert (call.timeout_seconds, call.correlation_id) == (7, "c")
    assert call.retry_policy.max_attempts == 3
    assert (call.due_at - call.submitted_at).total_seconds() == 3600


def test_a_body_is_sent_as_its_text_and_makes_it_a_post(calls: CallWorld, command: Command) -> None:
    call = calls.call(submitted(command, "--body", '{"no": json'))
    assert (call.request.method, call.request.body_json) == ("POST", '"{\\"no\\": json"')


def test_a_submission_can_come_from_standard_input(calls: CallWorld, command: Command) -> None:
    body = json.dumps({"name": "n", "request": {"method": "GET", "url": URL, "headers": {"Authorization": "s"}}})
    code, out, _ = command("submit", "--stdin", stdin=body)
    assert code == 0
    assert calls.call(out.strip()).request.headers_json == '{"Authorization": "s"}'


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give a URL with options, or --stdin and nothing else"),
        ((URL, "--stdin"), "give a URL with options, or --stdin and nothing else"),
        ((URL, "--body", "a", "--body-json", "1"), "--body and --body-json cannot both be given"),
        ((URL, "--body-json", "{"), "'--body-json': is not JSON"),
        ((URL, "--retry-policy", "x"), "'--retry-policy': is not JSON"),
        ((URL, "--header", "no colon"), "'--header': must be 'NAME: VALUE'"),
        (("--stdin",), "standard input must be the JSON of a submission"),
        ((URL, "--method", "HEAD"), "'HEAD' is not one of"),
    ],
)
def test_a_wrong_call_is_told_so(command: Command, arguments: tuple[str, ...], message: str) -> None:
    code, out, err = command("submit", *arguments)
    assert (code, out) == (2, "")
    assert message in err


def test_what_the_api_refuses_is_told_in_one_line(command: Command) -> None:
    code, _, err = command("submit", "ftp://x", "--tag", "", "--delay", "soon")
    assert code == 1
    assert err.count("\n") == 1
    assert all(word in err for word in ("request.url: ", "tags[0]: ", "delay: ", "HTTP 400"))


def test_json_is_what_the_api_answers(calls: CallWorld, command: Command) -> None:
    code, out, _ = command("submit", URL, "--json")
    assert code == 0
    assert json.loads(out) == calls.api.get(calls.path(json.loads(out)["id"])).json()


# -- see -----------------------------------------------------------------------------------------------------------


def test_calls_are_listed_by_filters(calls: CallWorld, command: Command) -> None:
    first = submitted(command, "--name", "report 1", "--tag", "a", "--delay", "2h")
    second = submitted(command, "--name", "report \u202e2", "--tag", "a", "--tag", "b", "--star", "--delay", "1h")
    third = submitted(command, "--name", "other")
    calls.finish(third, is_ok=False)

    def ids(*arguments: str) -> list[str]:
        code, out, _ = command("list", *arguments)
        assert code == 0
        return [line.split()[0] for line in out.splitlines()[1:]]

    assert set(ids()) == {first, second, third}
    assert ids("--name", "report") == [first, second]
    assert set(ids("--tag", "a")) == {first, second}
    assert ids("--tag", "a", "--tag", "b") == [second]
    assert ids("--starred") == [second]
    assert set(ids("--not-starred")) == {first, third}
    assert ids("--status", "Failed") == [third]
    assert ids("--next") == [second, first]
    assert ids("--next", "--due-to", "2026-12-20T16:30:00.001Z") == [second]
    assert ids("--next", "--due-to", "2026-12-20T16:30:00Z") == []
    assert ids("--created-to", "2026-12-20T15:30:00Z") == []
    _, table, _ = command("list", "--status", "Failed")
    assert "503 HttpStatus the receiver answered 503" in table
    assert "\u202e" not in command("list")[1]


def test_a_list_ends_at_its_limit_and_goes_over_pages(calls: CallWorld, command: Command) -> None:
    for _ in range(105):
        calls.submitted()
    _, out, err = command("list", "--limit", "103", "--json")
    assert len([json.loads(line)["id"] for line in out.splitlines()]) == 103
    assert "there are more than 103" in err
    assert len(command("list", "--limit", "105")[1].splitlines()) == 106


def test_a_call_and_its_executions_are_shown(calls: CallWorld, command: Command) -> None:
    call_id = submitted(command, "--header", "Authorization: s3cret", "--tag", "t", "--body", "b")
    execution_id = calls.finish(call_id, is_ok=False).outcome
    assert execution_id is not None
    code, out, _ = command("show", call_id)
    assert code == 0
    assert re.search(r"^status +Failed$", out, re.MULTILINE)
    assert "Authorization: [redacted]" in out
    assert "s3cret" not in out
    assert json.loads(command("show", call_id, "--json")[1])["status"] == "Failed"
    _, out, _ = command("executions", call_id)
    assert execution_id.execution_id in out
    assert len(command("executions", call_id, "--json")[1].splitlines()) == 1
    _, out, _ = command("executions", call_id, execution_id.execution_id)
    assert f"> GET {URL}" in out or f"> POST {URL}" in out
    assert "< 503" in out
    assert "héllo" in out
    assert "truncated, 6 bytes" in out
    assert json.loads(command("executions", call_id, execution_id.execution_id, "--json")[1])["number"] == 1


def test_what_is_not_there_is_told(command: Command) -> None:
    code, out, err = command("show", "01234567-89ab-7def-8123-456789abcdef")
    assert (code, out) == (1, "")
    assert "does not exist" in err


def test_events_are_shown(calls: CallWorld, command: Command) -> None:
    call_id = submitted(command, "--delay", "1h")
    code, out, _ = command("events", call_id)
    assert code == 0
    assert [line.split()[1:3] for line in out.splitlines()] == [
        ["1", "ServiceCallSubmitted"],
        ["2", "ServiceCallScheduled"],
    ]
    assert [json.loads(line)["sequence"] for line in command("events", call_id, "--json")[1].splitlines()] == [1, 2]


@pytest.mark.parametrize("is_ok", [True, False])
def test_events_are_followed_to_the_end_of_the_call(calls: CallWorld, command: Command, is_ok: bool) -> None:
    call_id = submitted(command)
    calls.begin(call_id)
    timer = threading.Timer(0.1, lambda: calls.finish(call_id, is_ok=is_ok))
    timer.start()
    code, out, _ = command("events", call_id, "--follow")
    timer.join()
    assert code == (0 if is_ok else 1)
    assert len(out.splitlines()) == 7
    assert out.splitlines()[-1].split()[2] == ("ServiceCallSucceeded" if is_ok else "ServiceCallFailed")


def test_events_are_shown_without_a_verdict(calls: CallWorld, command: Command) -> None:
    call_id = submitted(command)
    calls.finish(call_id, is_ok=False)
    code, out, _ = command("events", call_id)
    assert (code, len(out.splitlines())) == (0, 7)


@pytest.mark.parametrize("is_ok", [True, False])
def test_the_end_of_a_call_is_known_without_its_events(calls: CallWorld, command: Command, is_ok: bool) -> None:
    call_id = submitted(command)
    calls.finish(call_id, is_ok=is_ok)
    calls.store.outbox.mark_published(calls.store.outbox.unpublished(limit=100), now=calls.clock.now())
    assert calls.calls.prune(now=calls.clock.now(), events_published_before=MAX_INSTANT, limit=100) == 7
    assert command("events", call_id, "--follow")[:2] == (0 if is_ok else 1, "")


# -- change --------------------------------------------------------------------------------------------------------


def test_a_call_is_starred_tagged_rerun_and_removed(calls: CallWorld, command: Command) -> None:
    call_id = submitted(command, "--tag", "a", "--tag", "b")
    assert command("star", call_id)[0] == 0
    assert calls.call(call_id).starred
    assert command("star", call_id, "--remove")[0] == 0
    assert not calls.call(call_id).starred
    assert command("tag", call_id, "--add", "c", "--add", "a", "--remove", "b")[:2] == (0, "a\nc\n")
    assert calls.call(call_id).tags == ("a", "c")
    calls.finish(call_id)
    code, out, _ = command("rerun", call_id, "--delay", "1h", "--idempotency-key", "k")
    assert code == 0
    assert calls.call(out.strip()).rerun_of == call_id
    assert command("rerun", call_id, "--delay", "1h", "--idempotency-key", "k")[1] == out
    assert command("cancel", call_id)[0] == 1
    assert calls.call(call_id).status is CallStatus.SUCCEEDED
    assert command("delete", call_id)[0] == 0
    assert command("delete", call_id)[0] == 1


def test_a_cancelled_call_is_kept_until_it_is_deleted(calls: CallWorld, command: Command) -> None:
    call_id = submitted(command, "--delay", "1h")
    code, _, err = command("delete", call_id)
    assert (code, "cancel it first" in err) == (1, True)
    assert command("cancel", call_id) == (0, "", f"cancelled {call_id}\n")
    assert command("cancel", call_id)[0] == 0
    assert calls.call(call_id).status is CallStatus.CANCELLED
    assert call_id in command("list", "--status", "Cancelled")[1]
    assert command("delete", call_id)[0] == 0


def test_a_call_whose_request_is_in_flight_cannot_be_cancelled(calls: CallWorld, command: Command) -> None:
    call_id = submitted(command)
    calls.begin(call_id)
    code, _, err = command("cancel", call_id)
    assert code == 1
    assert "may have been sent" in err


def test_a_call_is_fired_now(calls: CallWorld, command: Command) -> None:
    call_id = submitted(command, "--delay", "1h")
    assert command("fire", call_id)[:2] == (0, f"{call_id}\n")
    assert calls.call(call_id).wake_at == calls.clock.now()


# -- the server ----------------------------------------------------------------------------------------------------


def test_a_key_is_taken_from_its_variable(
    calls: CallWorld, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    created = create_key(
        calls.store, key_id="k", tenant_id=TENANT, role=Role.READER, name="", expires_at=None, now=calls.clock.now()
    )
    with call_server(calls, with_auth=True) as server:
        arguments = ["calls", "list", "--url", f"{server.url}/", "--tenant", TENANT]
        assert run(arguments) == 1
        assert "set DUETIME_API_KEY" in capsys.readouterr().err
        monkeypatch.setenv("DUETIME_API_KEY", created.text)
        assert run(arguments) == 0
        assert run(["calls", "submit", URL, *arguments[2:]]) == 1
        assert "role writer" in capsys.readouterr().err


@pytest.mark.parametrize("url", ["", "ftp://x"])
def test_what_is_no_url_of_a_server_is_refused(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["calls", "list", "--url", url]) == 2
    assert "--url" in capsys.readouterr().err


def test_a_server_that_is_not_there_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["calls", "list", "--url", "http://127.0.0.1:1"]) == 1
    assert "http://127.0.0.1:1: " in capsys.readouterr().err


@pytest.mark.parametrize("host", ["a..b", "x" * 300, "\u00fc\udcff"])
def test_a_host_that_cannot_be_one_is_told(host: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["calls", "list", "--url", f"http://{host}"]) in (1, 2)
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("key", ["dtk_s3cret\nx: y", "dtk_s3cret \u2026", "dtk s3cret"])
def test_a_key_that_cannot_be_sent_is_not_shown(
    key: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DUETIME_API_KEY", key)
    assert run(["calls", "list", "--url", "http://127.0.0.1:1"]) == 2
    err = capsys.readouterr().err
    assert ("DUETIME_API_KEY" in err, "s3cret" in err) == (True, False)


def test_a_key_may_end_with_a_line_and_says_the_tenant(
    calls: CallWorld, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    created = create_key(
        calls.store, key_id="k", tenant_id=TENANT, role=Role.WRITER, name="", expires_at=None, now=calls.clock.now()
    )
    with call_server(calls, with_auth=True) as server:
        monkeypatch.setenv("DUETIME_URL", server.url)
        monkeypatch.setenv("DUETIME_API_KEY", f"{created.text}\r\n")
        assert run(["calls", "submit", URL]) == 0
        assert calls.call(capsys.readouterr().out.strip()).tenant_id == TENANT
        assert run(["whoami"]) == 0
        assert TENANT in capsys.readouterr().out


@pytest.mark.parametrize("body", [b"", b"<html>", b"[1]", b"{}", b'{"message":"hello"}'])
def test_a_server_of_something_else_is_told_from_the_api(
    body: bytes, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Say, the receiver of ``duetime listen``."""
    monkeypatch.setattr(
        "httpx.HTTPTransport.handle_request", lambda *_: httpx.Response(200, content=body, stream=None)
    )
    for words in (["calls", "list"], ["calls", "show", "x"], ["namespaces", "show", "x"], ["health"]):
        assert run(words) == 1
        assert "is not Duetime's API" in capsys.readouterr().err
