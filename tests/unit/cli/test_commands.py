from __future__ import annotations

import builtins
import json
import re
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from duetime import __version__
from duetime.api.documents.openapi import openapi_document
from duetime.api.routes import all_routes
from duetime.cli.app import app
from duetime.cli.main import run
from duetime.cli.options import Command, HeadedCommand
from duetime.runtime.settings import LocalSettings, WorkerSettings, option, variable
from duetime.runtime.tuning import StoreSettings


def failure(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that says why."""
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("duetime: error: ")
    return line.removeprefix("duetime: error: ")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"duetime {__version__}\n"


def test_no_command_shows_the_help_and_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 2
    assert "Usage: duetime" in capsys.readouterr().err


def test_the_help_says_of_every_command_what_it_does_without_being_cut_off(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for words in ([], *([name] for name, command in app.commands.items() if isinstance(command, click.Group))):
        assert run([*words, "--help"]) == 0
        listed = capsys.readouterr().out.partition("Commands:")[2]
        assert listed
        assert "..." not in listed, listed


def every_command(group: click.Group = app, *path: str) -> dict[tuple[str, ...], click.Command]:
    """The commands, those of groups included, by their words."""
    found: dict[tuple[str, ...], click.Command] = {}
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            found |= every_command(command, *path, name)
        else:
            found[(*path, name)] = command
    return found


@pytest.mark.parametrize("words", sorted(every_command()), ids=" ".join)
def test_every_command_explains_every_option(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*words, "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for parameter in every_command()[words].params:
        if isinstance(parameter, click.Argument):
            assert parameter.make_metavar(click.Context(app)) in text
            continue
        assert isinstance(parameter, click.Option)
        assert parameter.opts[0] in text
        assert parameter.help
        has_no_default = parameter.to_info_dict()["default"] is None
        is_said = "default: " in parameter.help or bool(parameter.show_default)
        assert parameter.is_flag or parameter.multiple or is_said or has_no_default


@pytest.mark.parametrize("command", ["serve", "worker"])
def test_the_many_settings_of_a_server_stand_under_headings(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([command, "--help"]) == 0
    sections = re.split(r"^(\w[\w ]*):$", capsys.readouterr().out, flags=re.MULTILINE)[1:]
    options = {
        heading: re.findall(r"^  (?:-h, )?--([a-z-]+)", text, flags=re.MULTILINE)
        for heading, text in zip(sections[::2], sections[1::2], strict=True)
    }

    assert max(map(len, options.values())) <= 13
    assert "egress-https-only" in options["Where callbacks may go"]
    assert "fired-retention-seconds" in options["What is kept"]
    assert "store" in options["Options"]
    assert [heading for heading, names in options.items() if "lease-seconds" in names] == ["Firing"]


def test_every_operation_of_the_api_has_a_command() -> None:
    for_people = {"getConsole", "getConsoleFile", "getDocs", "getRoot"}
    operations = {
        operation["operationId"]
        for methods in openapi_document(all_routes())["paths"].values()
        for operation in methods.values()
    }
    commands = every_command().values()
    assert {each for command in commands for each in getattr(command.callback, "operations", ())} == (
        operations - for_people
    )


@pytest.mark.parametrize("words", sorted(every_command()), ids=" ".join)
def test_choices_are_taken_in_any_case_like_states_in_the_api(words: tuple[str, ...]) -> None:
    for parameter in every_command()[words].params:
        if isinstance(parameter.type, click.Choice):
            for choice in parameter.type.choices:
                assert parameter.type.convert(str(choice).swapcase(), parameter, None) == choice, words


@pytest.mark.parametrize(
    ("command", "model"), [("serve", LocalSettings), ("worker", WorkerSettings), ("init", StoreSettings)]
)
def test_the_options_of_a_setting_name_its_variable_and_default(command: str, model: Any) -> None:
    options = {parameter.name: parameter for parameter in app.commands[command].params}
    settings = options.keys() & model.model_fields.keys()
    assert "store" in settings
    for name in settings:
        parameter = options[name]
        assert isinstance(parameter, click.Option)
        assert parameter.opts == [option(str(name))]
        assert f"env: {variable(str(name))}]" in (parameter.help or "")


def _leaves(group: click.Group) -> Iterator[click.Command]:
    for command in group.commands.values():
        if isinstance(command, click.Group):
            yield from _leaves(command)
        else:
            yield command


def test_no_command_ignores_the_first_of_two_values() -> None:
    assert {type(command) for command in _leaves(app)} == {Command, HeadedCommand}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["serve", "--nonsense"], "No such option '--nonsense'"),
        (["serve", "--port"], "requires an argument"),
        (["serve", "--port", "http"], "--port: "),
        (["serve", "--port", "65536"], "--port: "),
        (["serve", "--workers", "-1"], "--workers: "),
        (["serve", "--workers", "2", "--store", "sqlite://"], "--workers: a store in memory"),
        (["serve", "--lease-seconds", "nan"], "--lease-seconds: "),
        (["worker", "--store", "sqlite://"], "--store: a store in memory"),
        (["serve", "--auth", "--store", "sqlite://"], "--auth: "),
        (["serve", "--port", "0", "--store", "nonsense"], "a store URL begins with a scheme"),
        (["serve", "--port", "0", "--store", "gopher://x"], "unknown store scheme 'gopher'"),
        (["serve", "--port", "0", "--store", "sqlite:///blocked/x.db"], "blocked"),
        (["init", "--store", "sqlite:///blocked/x.db"], "blocked"),
        (["listen", "--status", "99"], "'--status'"),
        (["listen", "--secret", "confidential"], "--secret: must begin with whsec_"),
        (["namespaces", "redrive"], "Missing argument 'NAMESPACE'"),
        (["namespaces", "redrive", "default", "--due-from", "today"], "'--due-from'"),
        (
            ["namespaces", "redrive", "default", "--timer-id", "a", "--tag", "x"],
            "--timer-id cannot be combined with filters",
        ),
        (["timers", "create", "default", "http://x", "--payload", "{"], "'--payload': is not JSON"),
        (["timers", "list", "default", "--limit", "0"], "'--limit'"),
        (["timers", "list", "default", "--tag", "a", "--tag=b"], "'--tag' is given twice"),
        (["webhook", "secrets", "create", "--overlap", "1h", "--overlap", "1h"], "'--overlap' is given twice"),
        (["timers", "update", "default", "t", "--clear", "tags", "--tag", "a"], "--clear tags cannot be combined"),
        (["timers", "update", "default", "t", "--clear", "payload", "--payload", "null"], "--clear payload cannot"),
        (
            ["schedules", "update", "default", "s", "--clear", "max-firings", "--max-firings", "1"],
            "--clear max-firings cannot be combined",
        ),
        (["schedules", "update", "default", "s", "--clear", "cron", "--cron", "@daily"], "--clear cron cannot"),
        (["apply", "-f", "a.yaml", "--file", "b.yaml"], "'--file' is given twice"),
        (["serve", "--port", "1", "--port", "2"], "'--port' is given twice"),
    ],
)
def test_a_usage_error_is_one_line_and_exit_code_2(
    arguments: list[str],
    reason: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "blocked").write_text("a file, not a directory", encoding="utf-8")
    assert run(arguments) == 2
    assert reason in failure(capsys)
    assert [path.name for path in tmp_path.iterdir()] == ["blocked"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["worker", "--store", "sqlite:///none.db"], "duetime init"),
        (["init", "--store", "sqlite:///not-a-database.db"], "not-a-database.db"),
    ],
)
def test_a_store_that_cannot_be_used_is_one_line_and_exit_code_1(
    arguments: list[str],
    reason: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "not-a-database.db").write_bytes(b"x" * 5000)
    assert run(arguments) == 1
    assert reason in failure(capsys)


def test_a_switch_may_be_spelled_out_and_wins_over_its_variable(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUETIME_AUTH", "true")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        more = ["--store", "sqlite://", "--port", str(taken.getsockname()[1])]
        assert run(["serve", *more]) == 2
        assert failure(capsys).startswith("--auth: ")
        assert run(["serve", "--auth", "false", *more]) == 1
    assert failure(capsys).startswith("cannot listen on ")


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_nobody_serves_the_network_without_keys_by_mistake(
    host: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if host == "::" and not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    monkeypatch.chdir(tmp_path)
    assert run(["serve", "--port", "0", "--host", host]) == 2
    line = failure(capsys)
    assert "--auth" in line
    assert "--open-to-network" in line
    assert list(tmp_path.iterdir()) == []


def test_a_variable_that_nothing_reads_is_warned_of(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUETIME_LEASE_SECS", "3")
    assert run(["init", "--store", f"sqlite:///{tmp_path}/x.db"]) == 0
    (warning,) = [line for line in capsys.readouterr().err.splitlines() if "settings.unknown" in line]
    assert "DUETIME_LEASE_SECS" in warning


def test_a_worker_whose_metrics_port_is_taken_does_not_start(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    store = f"sqlite:///{tmp_path}/x.db"
    assert run(["init", "--store", store]) == 0
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert run(["worker", "--store", store, "--metrics-port", str(taken.getsockname()[1])]) == 1
    assert "cannot listen" in capsys.readouterr().err


def test_a_bad_variable_is_one_line_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUETIME_PORT", "eighty")
    assert run(["serve"]) == 2
    line = failure(capsys)
    assert line.startswith("DUETIME_PORT: ")
    assert "eighty" not in line


@pytest.mark.parametrize("command", ["serve", "listen"])
def test_a_taken_port_is_one_line_and_exit_code_1(
    command: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert run([command, "--port", str(port)]) == 1
    assert failure(capsys) == f"cannot listen on 127.0.0.1:{port}: Address already in use"
    assert list(tmp_path.iterdir()) == []


def test_a_host_that_does_not_exist_is_one_line_and_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["listen", "--host", "nowhere.invalid", "--port", "0"]) == 1
    assert failure(capsys).startswith("cannot listen on nowhere.invalid:0: ")


def test_the_missing_local_extra_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real_import = builtins.__import__

    def without_click(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "click":
            raise ImportError(name)
        return real_import(name, *args, **kwargs)

    monkeypatch.delitem(sys.modules, "click")
    monkeypatch.setattr(builtins, "__import__", without_click)
    assert run(["--version"]) == 1
    assert "pip install 'duetime[local]'" in failure(capsys)


@pytest.mark.parametrize("command", ["serve", "worker", "init"])
@pytest.mark.parametrize(
    ("url", "warning"),
    [
        ("tidb://u@127.0.0.1:{port}/x", ("experimental", "the store for TiDB is experimental: its tests run on ")),
        ("oracle://u:p@127.0.0.1:{port}/x", ("untested", "the store for Oracle is untested: its tests run on no ")),
    ],
)
def test_a_start_says_how_far_its_store_is_proved(
    command: str, url: str, warning: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["--log-format", "json", *(["--port", "0"] if command == "serve" else [])]
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        assert run([command, "--store", url.format(port=closed.getsockname()[1]), *more]) == 1
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("{")]
    (event,) = [event for event in map(json.loads, lines) if event["action"] == "store.unproved"]

    assert (event["level"], event["support"]) == ("warning", warning[0])
    assert event["message"].startswith(warning[1])


def test_a_supported_store_needs_no_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["init", "--store", f"sqlite:///{tmp_path}/duetime.db"]) == 0
    assert "WARNING" not in capsys.readouterr().err
