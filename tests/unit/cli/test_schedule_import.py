"""``duetime schedules import``: crontabs, and schedules of EventBridge."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from duetime.cli.moving.requests import request_of
from tests.support.commands import Cli

RUNNER = "https://runner.test/{id}"
CRONTAB = """\
# m h dom mon dow command
MAILTO=ops@example.test
*/5 * * * * curl -fsS -m 9.5 --retry 2 https://a.test/hooks/ping >/dev/null 2>&1
CRON_TZ = "Europe/Berlin"
30 2 * * 1-5 /usr/bin/curl -XPOST -H 'X-Key: k' -H "Content-Type: application/json" -d '{"n": 1.10}' https://a.test/in
@daily   /usr/local/bin/backup --date=\\%F %first%second
@reboot  /usr/local/bin/start
nonsense
0 0 31 2 * curl https://a.test/never
"""


@pytest.fixture(autouse=True)
def _namespace(store: object, cli: Cli) -> None:
    cli("namespaces", "create", "default")


def imported(cli: Cli, text: str, *words: str, code: int = 0) -> tuple[list[str], list[str]]:
    out, err = cli("schedules", "import", "default", *words, code=code, stdin=text)
    return out.splitlines(), err.splitlines()


def stored(cli: Cli) -> list[dict[str, Any]]:
    return [json.loads(line) for line in cli("schedules", "list", "default", "--json")[0].splitlines()]


def test_a_crontab_is_told_line_by_line(cli: Cli) -> None:
    out, err = imported(cli, CRONTAB, "--dry-run", code=1)

    assert [line.partition(": ")[0].rpartition("-")[0] for line in out] == [
        "create default/ping",
        "create default/in",
    ]
    assert err == [
        "times are read as UTC: give --tz if the machine of the crontab has another time zone",
        "line 2: failures are not mailed: they are events (docs/events.md)",
        "line 3: it is sent as POST, not as GET",
        "line 5: the data is the payload in the body, not the whole body",
        "line 6: has a % in it: what follows is no part of a request: give --callback-url",
        "line 7: @reboot is no time",
        "line 8: is no line of a crontab",
        f"line 9: {err[7].split()[2]} cron: day-of-month: no month of the expression has such a day",
        "2 to create, 0 unchanged, 1 failed, 3 left out",
    ]
    assert stored(cli) == []


def test_requests_of_a_crontab_are_created_once(cli: Cli) -> None:
    text = "\n".join(CRONTAB.splitlines()[:5])
    for told in ("2 created, 0 unchanged, 0 failed, 0 left out", "0 created, 2 unchanged, 0 failed, 0 left out"):
        _, err = imported(cli, text)
        assert err[-1] == told

    posted, ping = sorted(stored(cli), key=lambda each: each["id"])
    assert (ping["callbackUrl"], ping["cron"], ping["timeZone"]) == (
        "https://a.test/hooks/ping",
        ["*/5 * * * *"],
        "UTC",
    )
    assert (ping["timeoutSeconds"], ping["retryPolicy"]["maxAttempts"], ping["misfire"]) == (10, 3, "skip")
    assert (posted["callbackUrl"], posted["timeZone"]) == ("https://a.test/in", "Europe/Berlin")
    assert (posted["headers"], posted["payload"]) == ({"X-Key": "k"}, {"n": 1.1})


def test_commands_go_to_the_url_that_is_given(cli: Cli) -> None:
    _, err = imported(cli, CRONTAB, "--callback-url", RUNNER, code=1)

    backup = next(each for each in stored(cli) if each["id"].startswith("backup-"))
    assert backup["callbackUrl"] == f"https://runner.test/{backup['id']}"
    assert backup["payload"] == {"command": "/usr/local/bin/backup --date=%F", "stdin": "first\nsecond"}
    assert "line 6: the command is the payload: who receives the callback runs it" in err
    assert err[-1] == "3 created, 0 unchanged, 1 failed, 2 left out"


def test_a_system_crontab_says_who_runs_a_command(cli: Cli) -> None:
    text = "17 * * * *\troot  cd / && run-parts /etc/cron.hourly\n5 * * * * root\n"
    _, err = imported(
        cli, text, "--format", "system-crontab", "--callback-url", RUNNER, "--tz", "Asia/Kolkata", code=3
    )

    (made,) = stored(cli)
    assert made["payload"] == {"user": "root", "command": "cd / && run-parts /etc/cron.hourly"}
    assert (made["cron"], made["timeZone"]) == (["17 * * * *"], "Asia/Kolkata")
    assert err[-2:] == ["line 2: has no command after the user", "1 created, 0 unchanged, 0 failed, 1 left out"]


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("curl https://a.test/1 && curl https://a.test/2", "has '&&' in it, so it is more than one request"),
        ("curl https://a.test/$HOST", "has a variable or a command in it that a shell would fill in"),
        ("curl -d n=1 https://a.test/", "curl: its data is not JSON, and a payload is"),
        ("curl -u a:b https://a.test/", "curl: unrecognized arguments: -u"),
        ("curl https://a.test/1 https://a.test/2", "curl: unrecognized arguments: https://a.test/2"),
        ("curl -H 'Host: b.test' https://a.test/", "has the header 'Host', which callbacks cannot have"),
        ("curl 'https://a.test/", "no closing quotation"),
        ("curl -s", "curl: the following arguments are required: url"),
        ("wget --spider https://a.test/", "wget: unrecognized arguments: --spider"),
        ("/usr/bin/true", "is no curl or wget command"),
    ],
)
def test_what_is_no_request_is_left_out(command: str, why: str, cli: Cli) -> None:
    out, err = imported(cli, f"0 9 * * * {command}\n", code=3)

    assert out == []
    assert err[0].startswith(f"line 1: {why}")
    assert err[0].endswith(": give --callback-url")


@pytest.mark.parametrize(
    "command",
    [
        """-d '"a # b"' https://a.test/a#b # costs $5; 'all' of it""",
        """-d "\\"a # b\\"" 'https://a.test/a#b'\t#""",
    ],
)
def test_a_comment_is_no_part_of_a_command(command: str) -> None:
    found, _ = request_of(f"curl {command}")
    assert found["callbackUrl"] == "https://a.test/a#b"
    assert found["payload"].text == '"a # b"'


def test_wget_is_read_too(cli: Cli) -> None:
    imported(cli, "@hourly wget -q -O - -T 20 --tries=3 --header='X-A: b' --post-data='[1]' https://a.test/w\n")
    (made,) = stored(cli)
    assert (made["payload"], made["headers"], made["timeoutSeconds"]) == ([1], {"X-A": "b"}, 20)
    assert made["retryPolicy"]["maxAttempts"] == 3


AWS: dict[str, Any] = {
    "Arn": "arn:aws:scheduler:eu-central-1:111122223333:schedule/billing/invoices",
    "ActionAfterCompletion": "NONE",
    "CreationDate": "2026-01-02T03:04:05.678000+00:00",
    "Description": "Monthly",
    "EndDate": "2027-12-31T23:59:00+01:00",
    "FlexibleTimeWindow": {"Mode": "FLEXIBLE", "MaximumWindowInMinutes": 15},
    "GroupName": "billing",
    "LastModificationDate": "2026-01-02T03:04:05+00:00",
    "Name": "invoices",
    "ScheduleExpression": "cron(0 10 ? * MON#2 *)",
    "ScheduleExpressionTimezone": "Europe/Berlin",
    "StartDate": 1798761600.0,
    "State": "DISABLED",
    "Target": {
        "Arn": "arn:aws:lambda:eu-central-1:111122223333:function:invoices",
        "RoleArn": "arn:aws:iam::111122223333:role/scheduler",
        "DeadLetterConfig": {"Arn": "arn:aws:sqs:eu-central-1:111122223333:dead"},
        "Input": '{"id": "<aws.scheduler.execution-id>", "n": 1}',
        "RetryPolicy": {"MaximumEventAgeInSeconds": 3600, "MaximumRetryAttempts": 5},
    },
}


def test_a_schedule_of_aws_is_carried_over(cli: Cli) -> None:
    out, err = imported(cli, json.dumps(AWS), "--callback-url", RUNNER)

    assert out == ["create default/invoices: next 2027-01-11T09:00:00.000Z"]
    assert err == [
        "line 1: invoices: its description is not carried over",
        "line 1: invoices: what fails for good is an event, and goes to no queue",
        "line 1: invoices: its group is a tag",
        "line 1: invoices: <aws.scheduler...> in its input stays as it is: a callback has scheduledAt and scheduleId",
        "1 created, 0 unchanged, 0 failed, 0 left out",
    ]
    (made,) = stored(cli)
    assert (made["state"], made["window"], made["tags"]) == ("Paused", "15m", ["billing"])
    assert (made["startAt"], made["endAt"]) == ("2027-01-01T00:00:00.000Z", "2027-12-31T22:59:00.000Z")
    assert (made["callbackUrl"], made["payload"]["n"]) == ("https://runner.test/invoices", 1)
    assert (made["retryPolicy"]["maxAttempts"], made["retryPolicy"]["maxAttemptsDuration"]) == (6, "1h")


def test_a_target_that_duetime_delivers_to_is_kept(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = "arn:aws:sqs:eu-central-1:111122223333:invoices.fifo"
    to_queue = {"Arn": queue, "Input": "[1]", "SqsParameters": {"MessageGroupId": "g"}}
    given = json.dumps({"Name": "q", "ScheduleExpression": "rate(5 minutes)", "Target": to_queue})
    _, refused = imported(cli, given, code=1)
    assert any("none of the targets that this deployment allows" in line for line in refused)

    monkeypatch.setenv("DUETIME_ALLOWED_TARGETS", "arn:aws:sqs:eu-central-1:111122223333:*")
    _, err = imported(cli, given)

    assert err[:2] == [
        "line 1: q: Target.SqsParameters is not carried over",
        "line 1: q: its target gets Duetime's message, in which the input is the payload",
    ]
    (made,) = stored(cli)
    assert (made["target"], made["callbackUrl"], made["payload"]) == ({"arn": queue}, None, [1])
    assert imported(cli, given)[1][-1] == "0 created, 1 unchanged, 0 failed, 0 left out"


def test_schedules_of_aws_come_one_after_the_other(cli: Cli) -> None:
    rate = {"Name": "r", "ScheduleExpression": "rate(5 minutes)", "CreationDate": AWS["CreationDate"]}
    once = {"Name": "o", "ScheduleExpression": "at(2099-12-01T13:05:09)", "Target": {"Input": "not JSON"}}
    listed = {"Schedules": [{"Name": "l", "State": "ENABLED", "Target": {"Arn": "a"}}]}
    broken = rate | {"Name": "b", "StartDate": "tomorrow"}
    text = "\n".join(map(json.dumps, (rate, once, listed, rate, broken, [1])))
    _, err = imported(cli, text, "--callback-url", RUNNER, code=1)

    assert err == [
        "line 2: o: it occurs once: a timer does that, too",
        "line 2: o: it occurs at the full minute",
        "line 2: o: its input is not JSON: the payload is a string",
        "line 3: l: has no ScheduleExpression: `aws scheduler get-schedule` prints it",
        "line 4: r is there twice: the first one counts",
        "line 5: b: is not as `aws scheduler get-schedule` prints a schedule",
        "line 6: is no schedule",
        "2 created, 0 unchanged, 1 failed, 3 left out",
    ]
    found = {each["id"]: each for each in stored(cli)}
    assert found["r"]["anchor"] == "2026-01-02T03:04:05.678Z"
    assert (found["o"]["nextScheduledAt"], found["o"]["payload"]) == ("2099-12-01T13:05:00.000Z", "not JSON")


def test_another_schedule_with_the_id_stays(cli: Cli) -> None:
    imported(cli, json.dumps(AWS), "--callback-url", RUNNER)
    _, err = imported(cli, json.dumps(AWS | {"State": "ENABLED"}), "--callback-url", "https://b.test", code=1)

    assert "line 1: invoices exists, and is another one (callbackUrl): it stays" in err
    (made,) = stored(cli)
    assert made["callbackUrl"] == "https://runner.test/invoices"


def test_files_of_other_editors_are_read_or_refused_in_one_line(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "crontab"
    file.write_bytes(b"\xef\xbb\xbf@daily curl https://a.test/bom\r\n")
    out, _ = cli("schedules", "import", "default", str(file), "--dry-run")
    assert out.startswith("create default/bom-")

    file.write_text("@daily curl https://a.test/\n", encoding="utf-16")
    assert "is not UTF-8" in cli.fails("schedules", "import", "default", str(file), code=2)


def test_what_cannot_be_read_or_has_no_place_is_one_line(cli: Cli) -> None:
    assert "the file is not JSON" in cli.fails("schedules", "import", "default", code=2, stdin='{"Name": ')
    assert "--time-zone" in cli.fails("schedules", "import", "default", "--tz", "UTC", code=2, stdin="{}")
    assert "nowhere" in cli.fails("schedules", "import", "nowhere", code=1, stdin="@daily curl https://a.test\n")
    universal = AWS | {"Target": {"Arn": "arn:aws:scheduler:::aws-sdk:sqs:sendMessage"}}
    for listed in (universal, AWS | {"Target": {}}, AWS | {"Target": ["a"]}):
        _, err = imported(cli, json.dumps(listed), code=3)
        assert err[0] == "line 1: invoices: Duetime does not deliver to its target: give --callback-url"
