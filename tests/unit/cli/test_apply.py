"""``duetime apply``: a file's namespaces and schedules, as one set."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import Cli

SET = """\
namespaces:
  orders:
    numShards: 2
    rateLimit: 50
    schedules:
      report: &report
        cron: '30 9 * * MON-FRI'
        timeZone: Europe/Berlin
        exclude: [2026-12-25]
        callbackUrl: https://a.test/report
        payload: {answer: no, rate: 1.5, none: null}
      weekly:
        <<: *report
        cron: '@weekly'
  reports: {}
"""


@pytest.fixture
def apply(store: object, cli: Cli, tmp_path: Path) -> Any:
    file = tmp_path / "schedules.yaml"

    def run(text: str, *words: str, code: int = 0) -> tuple[list[str], list[str]]:
        file.write_text(text, encoding="utf-8")
        out, err = cli("apply", "-f", str(file), *words, code=code)
        return out.splitlines(), err.splitlines()

    return run


def shown(cli: Cli, schedule_id: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cli("schedules", "show", "orders", schedule_id, "--json")[0])
    return found


def test_a_set_is_made_and_then_there_is_nothing_to_do(apply: Any, cli: Cli) -> None:
    planned, told = apply(SET, "--dry-run", code=3)
    assert [line.partition(":")[0] for line in planned] == [
        "create namespace orders",
        "create orders/report",
        "create orders/weekly",
        "create namespace reports",
    ]
    assert told == ["4 to create, 0 to change, 0 to delete, 0 unchanged"]
    assert cli("namespaces", "list", "--json")[0] == ""

    assert apply(SET)[1] == ["4 created, 0 changed, 0 deleted, 0 unchanged"]
    assert apply(SET) == ([], ["0 created, 0 changed, 0 deleted, 4 unchanged"])
    assert apply(SET, "--dry-run") == ([], ["0 to create, 0 to change, 0 to delete, 4 unchanged"])
    report = shown(cli, "report")
    assert (report["exclude"], report["payload"]) == (["2026-12-25"], {"answer": "no", "rate": 1.5, "none": None})
    assert shown(cli, "weekly")["cron"] == ["@weekly"]


def test_changes_keep_what_a_schedule_has_done(apply: Any, cli: Cli) -> None:
    apply(SET)
    before = shown(cli, "report")
    changed = SET.replace("30 9", "0 10").replace("rateLimit: 50", "rateLimit: 60").replace("rate: 1.5", "rate: 2")
    out, err = apply(changed, code=0)

    assert out == [
        "change namespace orders: rateLimit 50 -> 60",
        "change orders/report: payload, cron 30 9 * * MON-FRI -> 0 10 * * MON-FRI",
        "change orders/weekly: payload",
    ]
    assert err == ["0 created, 3 changed, 0 deleted, 1 unchanged"]
    after = shown(cli, "report")
    assert (after["cron"], after["createdAt"]) == (["0 10 * * MON-FRI"], before["createdAt"])
    (line,) = apply(
        changed.replace("Europe/Berlin", "UTC").replace(
            "cron: '@weekly'", "timeZone: Europe/Berlin\n        cron: '@weekly'"
        ),
        "--json",
    )[0]
    assert json.loads(line)["changes"] == {"timeZone": {"from": "Europe/Berlin", "to": "UTC"}}


def test_what_a_file_says_no_more_of_goes_back_to_the_default(apply: Any, cli: Cli) -> None:
    apply(
        SET.replace(
            "        timeZone", "        overlap: skip\n        retryPolicy: {maxAttempts: 3}\n        timeZone"
        )
    )
    out, _ = apply(SET)
    assert "overlap skip -> allow" in out[0]
    assert "retryPolicy" in out[0]
    assert shown(cli, "report")["overlap"] == "allow"


def test_only_what_says_whether_it_is_paused_is_paused_or_resumed(apply: Any, cli: Cli) -> None:
    apply(SET)
    cli("schedules", "pause", "orders", "report")
    assert apply(SET)[0] == []
    paused = SET.replace("        timeZone", "        paused: false\n        timeZone")
    assert apply(paused)[0] == ["change orders/report: state Paused -> Active"]
    assert shown(cli, "report")["state"] == "Active"
    assert apply(paused)[0] == []


def test_pruning_deletes_what_the_file_does_not_name(apply: Any, cli: Cli) -> None:
    apply(SET)
    cli("namespaces", "create", "other")
    for namespace in ("orders", "other"):
        cli("schedules", "create", namespace, "https://a.test/", "--id", "stray", "--cron", "@daily")
    fewer = SET.partition("      weekly:")[0]

    assert apply(fewer) == ([], ["0 created, 0 changed, 0 deleted, 2 unchanged"])
    assert apply(fewer, "--prune", "--dry-run", code=3)[0] == ["delete orders/stray", "delete orders/weekly"]
    assert apply(fewer, "--prune")[1] == ["0 created, 0 changed, 2 deleted, 2 unchanged"]
    assert cli("schedules", "list", "other")[0].splitlines()[1].startswith("stray")
    assert apply("namespaces: {orders: }", "--prune") == ([], ["0 created, 0 changed, 0 deleted, 1 unchanged"])
    assert apply("namespaces: {orders: {schedules: {}}}", "--prune")[0] == ["delete orders/report"]


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("30 9 * * MON-FRI", "61 9 * * *", "orders/report: cron: "),
        ("https://a.test/report", "ftp://a.test", "orders/report: callbackUrl: "),
        ("numShards: 2", "numShards: 3", "namespace orders: numShards: is 2, which no file changes"),
    ],
)
def test_when_one_is_wrong_nothing_is_changed(apply: Any, cli: Cli, old: str, new: str, why: str) -> None:
    apply(SET)
    _, err = apply(SET.replace("@weekly", "@monthly").replace(old, new), code=2)

    assert err[0].startswith(why)
    assert err[-1].startswith("duetime: error: ")
    assert f"the file has faults: {len(err) - 1}; nothing was changed" in err[-1]
    assert shown(cli, "weekly")["cron"] == ["@weekly"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("namespaces: [", "the file is not YAML: line 1"),
        ("namespaces: {a: {}, a: {}}", "line 1: 'a' is there twice"),
        ("a: &a [*a]", "the file: a is not known"),
        ("", "the file must be a mapping"),
        ("namespaces: [a]", "namespaces must be a mapping"),
        ("namespaces: {1: {}}", "namespaces: 1 must be a string: quote it"),
        ("namespaces: {a: {rate: 1}}", "a: rate is not known"),
        ("namespaces: {a: {schedules: {b: {id: c}}}}", "a.schedules.b: id is not known"),
        ("namespaces: {a: {schedules: {b: }}}", "a.schedules.b must be a mapping"),
        ("!!python/object/apply:os.getcwd []", "the file is not YAML: line 1"),
    ],
)
def test_what_is_no_set_is_a_usage_error(apply: Any, text: str, why: str) -> None:
    (err,) = apply(text, code=2)[1]
    assert why in err


def test_json_is_yaml(apply: Any) -> None:
    text = json.dumps({"namespaces": {"a": {"schedules": {"s": {"every": "90m", "callbackUrl": "https://a.test/"}}}}})
    assert apply(text, code=0)[1] == ["2 created, 0 changed, 0 deleted, 0 unchanged"]
    assert apply(text.replace("90m", "1h30m"))[0] == []


def test_a_schedule_of_service_calls_is_made_and_then_there_is_nothing_to_do(apply: Any, cli: Cli) -> None:
    call = "{name: close, request: {method: POST, url: https://a.test/close, body: {rate: 1.5}}}"
    text = f"namespaces:\n  orders:\n    schedules:\n      close: {{every: 1h, serviceCall: {call}}}\n"

    apply(text, "--dry-run", code=3)
    apply(text)

    assert shown(cli, "close")["serviceCall"]["request"]["body"] == {"rate": 1.5}
    apply(text, "--dry-run")
    _, told = apply(text.replace("name: close", "nme: close"), code=2)
    assert "serviceCall.nme" in " ".join(told)
