"""What the client refuses before anything is sent: there is no server here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from duetime_client import (
    NO_RETRIES,
    Duetime,
    InvalidArgument,
    NewSchedule,
    NewTimer,
    RawJson,
    Retries,
    RetryPolicy,
)
from duetime_client.bodies import SCHEDULE, patch, schedule_body
from tests.support.clients import FORMS, connecting

URL = "http://receiver.test/hook"
NOWHERE = "http://127.0.0.1:1"
NOW = datetime(2026, 12, 20, 15, 30, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture
def duetime() -> Iterator[Duetime]:
    with Duetime(NOWHERE, retries=NO_RETRIES) as duetime:
        yield duetime


@pytest.fixture
def timers(duetime: Any) -> Any:
    return duetime.timers()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "give one of execute_at, delay and local_time"),
        ({"delay": HOUR, "execute_at": NOW}, "give one of execute_at, delay and local_time"),
        ({"execute_at": datetime(2026, 12, 24)}, "execute_at: must have an offset"),
        ({"execute_at": "2026-12-24T18:00:00Z"}, "execute_at: must be a datetime"),
        ({"execute_at": datetime(1, 1, 1, tzinfo=timezone(HOUR))}, "execute_at: is out of range"),
        ({"delay": 60}, "delay: must be a timedelta"),
        ({"delay": -HOUR}, "delay: must not be negative"),
        ({"delay": HOUR, "timeout": timedelta(seconds=1.5)}, "timeout: must be whole seconds"),
        ({"delay": HOUR, "tags": "abc"}, "tags: must be several texts"),
        ({"delay": HOUR, "headers": [("a", "b")]}, "headers: must be a mapping"),
        ({"delay": HOUR, "retry_policy": {"maxAttempts": 1}}, "retry_policy: must be a RetryPolicy"),
        ({"delay": HOUR, "target": "arn:aws:sqs:eu-central-1:123456789012:orders"}, "target: must be a Target"),
        (
            {"delay": HOUR, "retry_policy": RetryPolicy(initial_interval=-HOUR)},
            "retry_policy.initial_interval: must not be negative",
        ),
    ],
)
def test_what_cannot_be_meant_is_not_sent(timers: Any, arguments: dict[str, Any], message: str) -> None:
    for use in (timers.create, lambda **given: timers.put("t", **given)):
        with pytest.raises(InvalidArgument) as refusal:
            use(callback_url=URL, **arguments)
        assert str(refusal.value).startswith(message)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"max_tries": 0}, "max_tries: must be a whole number, 1 or more"),
        ({"max_tries": "4"}, "max_tries: must be a whole number"),
        ({"first_wait": -HOUR}, "first_wait: must not be negative"),
        ({"max_wait": 5}, "max_wait: must be a timedelta"),
    ],
)
def test_tries_that_cannot_be_made_are_refused_before_the_first_one_fails(
    given: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidArgument, match=message):
        Retries(**given)


def test_of_many_the_one_that_is_wrong_is_named(duetime: Any) -> None:
    good = NewTimer(callback_url=URL, delay=HOUR)
    for bad, message in (
        ({"delay": "1h"}, "timers[1]: must be a NewTimer or a RawJson"),
        (NewTimer(callback_url=URL), "timers[1]: give one of execute_at, delay and local_time"),
        (RawJson("5"), "timers[1]: must be an object"),
    ):
        with pytest.raises(InvalidArgument) as refusal:
            duetime.timers().create_many([good, bad])
        assert str(refusal.value) == message
    with pytest.raises(InvalidArgument, match=r"calls\[0\]: must be a NewServiceCall or a RawJson"):
        duetime.service_calls.submit_many([{"name": "report"}])


def test_a_schedule_is_given_as_the_model(duetime: Any) -> None:
    with pytest.raises(InvalidArgument, match="schedule: must be a NewSchedule"):
        duetime.schedules.create("default", {"every": "1h"})


def test_one_expression_may_be_given_without_a_list() -> None:
    one, several = (
        schedule_body(NewSchedule(cron=cron, rrule=rrule, exclude=exclude), id="s")
        for cron, rrule, exclude in (
            ("@daily", "FREQ=DAILY", "2026-12-25"),
            (("@daily",), ["FREQ=DAILY"], ("2026-12-25",)),
        )
    )
    assert one == several
    assert (one["cron"], one["rrule"], one["exclude"]) == (["@daily"], ["FREQ=DAILY"], ["2026-12-25"])
    assert patch(SCHEDULE, cron="@daily", rrule=None) == {"cron": ["@daily"], "rrule": None}
    with pytest.raises(InvalidArgument, match="cron: must be several texts"):
        schedule_body(NewSchedule(cron=5), id="s")  # type: ignore[arg-type]


def test_a_schedule_submits_a_service_call_of_the_model(duetime: Any) -> None:
    template: Any = {"name": "report", "request": {"url": URL}}
    with pytest.raises(InvalidArgument, match="service_call: must be a NewServiceCall"):
        duetime.schedules.create("default", NewSchedule(every=HOUR, service_call=template))


@pytest.mark.parametrize("payload", [float("nan"), float("inf"), {"a": object()}, Decimal(1), "\ud800", {1, 2}])
def test_what_is_no_json_is_not_sent(timers: Any, payload: Any) -> None:
    with pytest.raises(InvalidArgument, match="payload: is not JSON"):
        timers.create(callback_url=URL, delay=HOUR, payload=payload)


def test_filters_are_looked_at_before_the_first_page(duetime: Any) -> None:
    for use in (duetime.timers().list, duetime.timers().dead_letters):
        with pytest.raises(InvalidArgument, match="due_from: must have an offset"):
            use(due_from=datetime(2026, 12, 24))
    with pytest.raises(InvalidArgument, match="created_to"):
        duetime.service_calls.list(created_to=datetime(2026, 12, 24))


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_path_is_not_left(duetime: Any, name: str) -> None:
    for use in (duetime.timers, duetime.service_calls.get, duetime.namespaces.get, duetime.api_keys.delete):
        with pytest.raises(InvalidArgument, match="neither empty"):
            use(name)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("url", "options"),
    [
        *[
            (url, {})
            for url in (
                "",
                "127.0.0.1:8080",
                "ftp://x",
                "http://",
                "http://x:99999",
                "http://u:pw@x",
                "http://x/?a",
            )
        ],
        ("http://x", {"api_key": "dtk_s3cret\n"}),
        ("http://x", {"api_key": "dtk_s3crét"}),
        ("http://x", {"tenant": ""}),
        ("http://x", {"api_key": 5}),
        ("http://x", {"timeout": timedelta()}),
        ("http://x", {"timeout": -HOUR}),
        ("http://x", {"timeout": 30}),
        ("http://x", {"retries": 4}),
    ],
)
def test_what_leads_nowhere_is_refused(form: str, url: str, options: dict[str, Any]) -> None:
    with connecting(form) as connect, pytest.raises(InvalidArgument) as refusal:
        connect(url, **options)
    for secret in ("s3cr", "pw"):
        assert secret not in repr(refusal.value)


@pytest.mark.parametrize("form", FORMS)
def test_a_key_is_not_shown(form: str) -> None:
    with connecting(form) as connect:
        client = connect("http://127.0.0.1:1", api_key="dtk_s3cret")
        assert repr(client).endswith("Duetime('http://127.0.0.1:1', tenant=None)")
        shown: Sequence[Any] = [client, vars(getattr(client, "_target", client))]
        assert "s3cret" not in repr(shown)
