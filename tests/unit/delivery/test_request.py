from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from duetime import __version__
from duetime.delivery.port import Callback
from duetime.delivery.request import callback_for
from duetime.domain.ids import schedule_timer_id
from duetime.domain.schedules import Occurrence, Schedule, SchedulePolicy
from duetime.domain.timers import Timer, TimerContent, TimerState

DUE = datetime(2026, 12, 20, 15, 30, tzinfo=UTC)
FIRED = datetime(2026, 12, 20, 15, 30, 0, 12_000, tzinfo=UTC)


def a_timer(timer_id: str = "order-1", *, namespace: str = "orders", attempts: int = 0, **content: Any) -> Timer:
    fields: dict[str, Any] = {"execute_at": DUE, "callback_url": "https://shop.test/hook"} | content
    return Timer(
        namespace=namespace,
        timer_id=timer_id,
        shard_id=3,
        content=TimerContent(**fields),
        digest="digest",
        state=TimerState.SCHEDULED,
        revision=1,
        firing_id="0190f0aa-firing",
        attempts=attempts,
        next_attempt_at=DUE,
        created_at=DUE,
        updated_at=DUE,
    )


def callback(**fields: Any) -> Callback:
    return callback_for(a_timer(**fields), key=7, fired_at=FIRED)


def headers(**fields: object) -> dict[str, str]:
    pairs = (line.partition(": ") for line in callback(**fields).headers)
    return {name: value for name, _, value in pairs}


def test_a_callback_in_whole() -> None:
    assert callback(payload_json='{"a": 1}', callback_timeout_seconds=12) == Callback(
        key=7,
        url="https://shop.test/hook",
        headers=(
            "Content-Type: application/json",
            f"User-Agent: Duetime/{__version__}",
            "webhook-id: 0190f0aa-firing",
            "webhook-timestamp: 1797780600",
        ),
        body=b'{"namespace":"orders","timerId":"order-1","executeAt":"2026-12-20T15:30:00.000Z",'
        b'"firedAt":"2026-12-20T15:30:00.012Z","attempt":1,"payload":{"a": 1}}',
        timeout_seconds=12,
    )


def test_the_attempt_counts_on_and_the_id_stays() -> None:
    again = callback(attempts=4)
    assert json.loads(again.body or b"")["attempt"] == 5
    assert "webhook-id: 0190f0aa-firing" in again.headers


@pytest.mark.parametrize(
    "payload",
    [
        "12345678901234567890123",
        "1.10",
        "1E400",
        "-0",
        '""',
        '"\\ud83d\\u0000"',
        '"żółw 🐢"',
        ' {"b":1, "a":[ ]} ',
        "null",
    ],
)
def test_the_payload_is_its_stored_text(payload: str) -> None:
    body = callback(payload_json=payload).body or b""
    assert body.endswith(b'"payload":' + payload.encode() + b"}")


def test_no_payload_is_null() -> None:
    assert json.loads(callback().body or b"")["payload"] is None


@pytest.mark.parametrize("timer_id", ['quo"te', "back\\slash", "#a b", "🐢" * 60, "\u2028", "%2F"])
def test_ids_arrive_as_they_are(timer_id: str) -> None:
    document = json.loads(callback(timer_id=timer_id, namespace="a.b-c_d").body or b"")
    assert (document["timerId"], document["namespace"]) == (timer_id, "a.b-c_d")


def test_timers_fired_at_different_times_do_not_share_them() -> None:
    later = datetime(2027, 1, 1, tzinfo=UTC)
    bodies = [json.loads(callback_for(a_timer(), key=1, fired_at=at).body or b"") for at in (FIRED, later, FIRED)]
    assert [body["firedAt"] for body in bodies] == [
        "2026-12-20T15:30:00.012Z",
        "2027-01-01T00:00:00.000Z",
        "2026-12-20T15:30:00.012Z",
    ]


# -- headers -------------------------------------------------------------------------------------------------------


def test_custom_headers_follow_ours() -> None:
    given = '{"Authorization": "Bearer token", "X-Tenant": " t1 ", "X-Latin": "caf\\u00e9", "X-Empty": " "}'
    assert callback(headers_json=given).headers[4:] == (
        "Authorization: Bearer token",
        "X-Tenant: t1",
        "X-Latin: café",
        "X-Empty;",
    )


@pytest.mark.parametrize(
    "name",
    [
        "Content-Type",
        "user-agent",
        "Webhook-Id",
        "webhook-signature",
        "webhook-anything",
        "X-Correlation-Id",
        "traceparent",
        "Host",
        "content-length",
        "Transfer-Encoding",
        "Connection",
        "Expect",
        "webhook_id",
        "Webhook_Signature",
        "content_length",
        "x_correlation-id",
        "TRANSFER_ENCODING",
        "X-Duetime-Schedule-Id",
        "x_duetime_scheduled_at",
        "x-duetime-occurrence",
    ],
)
def test_reserved_headers_cannot_be_overridden(name: str) -> None:
    assert callback(headers_json=json.dumps({name: "mine"})).headers == callback().headers


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X-A", "b\r\nwebhook-id: mine"),
        ("X-A", "b\nc"),
        ("X-A", "b\x00c"),
        ("X-A", "b\x7f"),
        ("X-A", "żółw"),
        ("X-A", 5),
        ("X-A", None),
        ("", "b"),
        ("X A", "b"),
        ("X-A\r\nY", "b"),
        ("X-A:", "b"),
        ("Ż", "b"),
    ],
)
def test_what_is_no_header_is_never_sent(name: str, value: object) -> None:
    """The API refuses these; a row may come from elsewhere."""
    assert callback(headers_json=json.dumps({name: value, "X-Good": "yes"})).headers[4:] == ("X-Good: yes",)


@pytest.mark.parametrize("headers_json", ["", "{", "[]", "null", '"X-A"', "[" * 100_000])
def test_headers_that_cannot_be_read_are_none(headers_json: str) -> None:
    assert callback(headers_json=headers_json).headers == callback().headers


def test_lone_surrogates_are_sent_as_the_escapes_that_they_came_from() -> None:
    document = json.loads(callback(payload_json='"\ud800"', correlation_id="\ud800").body or b"")
    assert document["payload"] == "\ud800"


@pytest.mark.parametrize(
    ("correlation_id", "sent"),
    [
        ("abc-123", "abc-123"),
        ("a b/c=d", "a b/c=d"),
        ("żółw", "%C5%BC%C3%B3%C5%82w"),
        ("a\r\nb: c", "a%0D%0Ab:%20c"),
        ("", ""),
    ],
)
def test_the_correlation_id_is_a_header(correlation_id: str, sent: str) -> None:
    assert headers(correlation_id=correlation_id)["x-correlation-id"] == sent


def test_the_occurrence_of_a_schedule_is_told_in_headers_too() -> None:
    schedule = Schedule(policy=SchedulePolicy(), passed_at=DUE, pending=Occurrence(DUE, FIRED), number=7)
    of_schedule = replace(a_timer(schedule_timer_id("täglich")), schedule=schedule)
    to_queue = replace(
        of_schedule, content=replace(of_schedule.content, callback_url="arn:aws:sqs:eu-central-1:123456789012:q")
    )
    sent, queued = (callback_for(each, key=7, fired_at=FIRED) for each in (of_schedule, to_queue))

    assert sent.headers[4:] == (
        "x-duetime-schedule-id: t%C3%A4glich",
        "x-duetime-scheduled-at: 2026-12-20T15:30:00.000Z",
        "x-duetime-occurrence: 7",
    )
    assert queued.headers[4:] == ()


def test_without_correlation_id_there_is_no_header() -> None:
    assert "x-correlation-id" not in headers()


def test_a_message_to_a_target_names_its_firing_and_has_no_headers_of_the_client() -> None:
    arn = "arn:aws:sqs:eu-central-1:123456789012:orders"
    sent = callback(callback_url=arn, headers_json='{"x-own": "1"}')

    assert sent.url == arn
    assert sent.body == (
        b'{"namespace":"orders","timerId":"order-1","executeAt":"2026-12-20T15:30:00.000Z",'
        b'"firedAt":"2026-12-20T15:30:00.012Z","attempt":1,"payload":null,"firingId":"0190f0aa-firing"}'
    )
    assert not any(line.startswith("x-own") for line in sent.headers)
