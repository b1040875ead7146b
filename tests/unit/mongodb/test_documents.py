"""Timers, calls, executions and events as documents: exactly what was given comes back, and damage is told."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import bson
import pytest
from bson.codec_options import CodecOptions
from bson.datetime_ms import DatetimeMS
from bson.int64 import Int64

from duetime.domain.service_calls import CallFailure, CallOutcome, CallStatus
from duetime.domain.timers import FailureReason, Timer, TimerState
from duetime.domain.times import MAX_INSTANT, MIN_INSTANT
from duetime.stores.event_reading import UnreadableEventError
from duetime.stores.mongodb import call_documents, event_documents, execution_documents
from duetime.stores.mongodb.database import READ_AS
from duetime.stores.mongodb.timer_documents import UnreadableError, decode, decode_or_salvage, encode
from tests.support import calls as make
from tests.support.builders import make_failure, make_namespace, make_timer, seconds
from tests.support.clock import NOW

NAMESPACE = make_namespace()
OPTIONS: CodecOptions[dict[str, Any]] = READ_AS


def through_bson(document: dict[str, Any]) -> dict[str, Any]:
    """As it comes back from a server."""
    return bson.decode(bson.encode(document, codec_options=OPTIONS), codec_options=OPTIONS)


def full_timer() -> Timer:
    timer = make_timer(
        NAMESPACE,
        'a 😀 "quoted" $id.x',
        payload_json='{"n": 1.10, "z": "\\u0000", "$set": [1e400]}',
        headers_json='{"A":  "1"}',
        retry_policy_json='{"maxAttempts":3}',
        correlation_id="c",
        tags=("b", "a", "$x"),
        expire_after_ms=2**40,
    )
    return replace(
        timer,
        revision=2**40,
        failure=make_failure(),
        fired_at=NOW + seconds(0.001),
        expires_at=MAX_INSTANT,
        rearmed_at=MIN_INSTANT,
        attempt_log='[{"number":1}]',
    )


@pytest.mark.parametrize("timer", [make_timer(NAMESPACE), full_timer()], ids=["usual", "full"])
def test_a_timer_comes_back_as_it_was(timer: Timer) -> None:
    document = through_bson(encode(timer))

    assert decode(document) == timer
    assert decode_or_salvage(document) == timer


def test_the_fields_are_the_seeds() -> None:
    timer = make_timer(NAMESPACE, "t1", payload_json='{"a": 1.0}')

    document = through_bson(encode(timer))

    assert document["row_type"] == 2
    assert document["shard_id"] == timer.shard_id
    assert document["timer_uuid"] == timer.timer_uuid
    assert isinstance(document["timer_uuid"], UUID)
    assert document["timer_execute_at"] == NOW
    assert document["timer_payload"] == '{"a": 1.0}'
    assert None not in document.values()


def test_a_finished_timer_is_not_in_the_due_index() -> None:
    timer = replace(make_timer(NAMESPACE), state=TimerState.FIRED, next_attempt_at=None, fired_at=NOW)

    document = encode(timer)

    assert "timer_execute_at" not in document
    assert decode(through_bson(document)) == timer


DAMAGE: dict[str, Any] = {
    "timer_state": "nonsense",
    "timer_due_at": "2026-12-20",
    "timer_revision": "1",
    "timer_attempts": True,
    "timer_callback_url": None,
    "timer_payload": {"a": 1},
    "timer_tags": ["a", 1],
    "timer_created_at": DatetimeMS(2**62),
    "timer_failure": {"reason": "secret"},
    "timer_updated_at": 17,
    "timer_uuid": "00917726-5d83-db21-7982-b9f6c24685c7",
}


@pytest.mark.parametrize("field", DAMAGE)
def test_a_damaged_timer_is_told_and_salvaged(field: str) -> None:
    timer = full_timer()
    document = through_bson({**encode(timer), field: DAMAGE[field]})

    with pytest.raises(UnreadableError) as raised:
        decode(document)
    assert "secret" not in str(raised.value)
    assert "nonsense" not in str(raised.value)

    salvaged = decode_or_salvage(document)
    assert (salvaged.namespace, salvaged.timer_id, salvaged.shard_id) == (
        timer.namespace,
        timer.timer_id,
        timer.shard_id,
    )
    assert salvaged.state is TimerState.FAILED
    assert salvaged.next_attempt_at is None
    assert salvaged.failure is not None
    assert salvaged.failure.reason is FailureReason.UNREADABLE


@pytest.mark.parametrize("field", sorted(encode(make_timer(NAMESPACE)).keys() - {"row_type"}))
def test_a_timer_without_a_field_is_readable_or_told(field: str) -> None:
    document = encode(make_timer(NAMESPACE))
    del document[field]

    salvaged = decode_or_salvage(through_bson(document))

    assert salvaged.failure is not None or salvaged == decode(document)


def test_whole_numbers_of_64_bits_are_plain_again() -> None:
    timer = decode({**encode(make_timer(NAMESPACE)), "timer_revision": Int64(7)})
    assert type(timer.revision) is int


CALL = make.submitted(tags=("b", "a"), idempotency_key="k", retry_policy_json=make.RETRIED).after


@pytest.mark.parametrize(
    "call",
    [
        CALL,
        replace(CALL, tags=(), idempotency_key=None, retry_policy_json=None),
        replace(
            CALL,
            status=CallStatus.FAILED,
            wake_at=None,
            finished_at=NOW,
            expires_at=NOW,
            outcome=CallOutcome(execution_id="e", http_status=503, reason=CallFailure.HTTP_STATUS, message="no"),
        ),
    ],
)
def test_a_call_comes_back_as_it_was(call: Any) -> None:
    assert call_documents.decode_call(through_bson(call_documents.encode_call(call))) == call


@pytest.mark.parametrize("field", ["status", "request", "due_at", "tags", "is_starred", "attempts", "outcome"])
def test_a_damaged_call_is_told_and_salvaged(field: str) -> None:
    document = through_bson({**call_documents.encode_call(CALL), field: "secret"})

    with pytest.raises(call_documents.UnreadableCallError) as raised:
        call_documents.decode_call(document)
    assert "secret" not in str(raised.value)
    salvaged = call_documents.decode_or_salvage_call(document)
    assert (salvaged.tenant_id, salvaged.call_id) == (CALL.tenant_id, CALL.call_id)
    assert salvaged.status is CallStatus.FAILED


def test_an_execution_comes_back_as_it_was_or_salvaged() -> None:
    begun = make.begun(CALL)
    (execution,) = begun.executions
    (ended,) = make.concluded(begun.after, execution).executions

    for each in (execution, ended):
        document = through_bson(execution_documents.encode_execution(each))
        assert execution_documents.decode_or_salvage_execution(document) == each
        for name in ("request", "execution_status", "started_at"):
            damaged = execution_documents.decode_or_salvage_execution({**document, name: "secret"})
            assert (damaged.execution_id, damaged.failure) == (each.execution_id, CallFailure.UNREADABLE)
            assert "secret" not in damaged.message


def test_an_event_comes_back_as_it_was_or_is_told() -> None:
    event = make.submitted().events[1]
    document = through_bson({**event_documents.encode_event(event, now=NOW), "_id": bson.ObjectId()})

    assert event_documents.decode_event(document).event == event
    with pytest.raises(UnreadableEventError) as raised:
        event_documents.decode_event({**document, "event_type": "secret"})
    assert "secret" not in str(raised.value)


def test_instants_are_utc() -> None:
    read = decode(through_bson(encode(make_timer(NAMESPACE)))).created_at
    assert read.tzinfo is UTC
    assert isinstance(read, datetime)
