"""Rows as documents and back: exactly what was given comes back, and damage is told."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

import bson
import pytest
from bson.datetime_ms import DatetimeMS
from bson.int64 import Int64

from duetime.domain.service_calls import CallFailure, CallOutcome, CallStatus
from duetime.domain.timers import FailureReason, Timer, TimerState
from duetime.domain.times import MAX_INSTANT, MIN_INSTANT
from duetime.stores.backends.mongodb.database import READ_AS
from duetime.stores.backends.mongodb.documents import changed, place_of, to_document, to_row
from duetime.stores.core.call_codec import decode_call, decode_or_salvage_call, encode_call
from duetime.stores.core.event_codec import READ, decode_event, encode_event
from duetime.stores.core.execution_codec import decode_or_salvage_execution, encode_execution
from duetime.stores.core.timer_codec import decode, decode_or_salvage, encode
from duetime.stores.decoding import UnreadableError
from duetime.stores.entities import DUE, EVENT, EXECUTION, SERVICE_CALL, TIMER
from duetime.stores.entity import DAMAGED, Entity, Row
from duetime.testing.contract import call_builders as make
from duetime.testing.contract.builders import make_failure, make_namespace, make_timer, seconds
from tests.support.clock import NOW

NAMESPACE = make_namespace()


def document_of(entity: Entity, row: Row) -> dict[str, Any]:
    return to_document(entity, row, 0)


def through_bson(entity: Entity, document: dict[str, Any], names: tuple[str, ...] = ()) -> Row:
    """The row of these fields, or of all, as it comes back from a server."""
    sent = bson.encode(document, codec_options=READ_AS)
    return to_row(entity, bson.decode(sent, codec_options=READ_AS), names or entity.names)


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
    row = through_bson(TIMER, document_of(TIMER, encode(timer)))

    assert row == encode(timer)
    assert decode(row) == timer
    assert decode_or_salvage(row) == timer


def test_the_fields_are_the_seeds() -> None:
    timer = make_timer(NAMESPACE, "t1", payload_json='{"a": 1.0}')

    document = document_of(TIMER, encode(timer))

    assert document["row_type"] == 2
    assert document["shard_id"] == timer.shard_id
    assert document["timer_uuid"] == timer.timer_uuid.bytes
    assert document["timer_execute_at"] == NOW
    assert isinstance(document["timer_execute_at"], datetime)
    assert document["timer_payload"] == '{"a": 1.0}'
    assert None not in document.values()


def test_a_finished_timer_is_not_in_the_due_index() -> None:
    timer = replace(make_timer(NAMESPACE), state=TimerState.FIRED, next_attempt_at=None, fired_at=NOW)

    assert "timer_execute_at" not in document_of(TIMER, encode(timer))
    assert changed(TIMER, {"timer_execute_at": None}, 0) == {"$unset": {"timer_execute_at": ""}}


def test_an_unpublished_event_is_marked() -> None:
    event = make.submitted().events[0]

    assert document_of(EVENT, encode_event(event))["has_no_published_at"] is True
    assert "has_no_published_at" not in document_of(EVENT, encode_event(event, published_at=NOW))
    assert changed(EVENT, {"published_at": 0}, 0)["$unset"].keys() == {"has_no_published_at"}


DAMAGE: dict[str, Any] = {
    "timer_state": "nonsense",
    "timer_due_at": "2026-12-20",
    "timer_revision": "1",
    "timer_attempts": True,
    "timer_callback_url": None,
    "timer_payload": {"a": 1},
    "timer_tags": '["a", 1]',
    "timer_created_at": DatetimeMS(2**62),
    "timer_failure": '["secret"]',
    "timer_updated_at": 17,
    "timer_uuid": "00917726-5d83-db21-7982-b9f6c24685c7",
}


@pytest.mark.parametrize("field", DAMAGE)
def test_a_damaged_timer_is_told_and_salvaged(field: str) -> None:
    timer = full_timer()
    row = through_bson(TIMER, {**document_of(TIMER, encode(timer)), field: DAMAGE[field]})

    with pytest.raises(UnreadableError) as raised:
        decode(row)
    assert "secret" not in str(raised.value)
    assert "nonsense" not in str(raised.value)

    salvaged = decode_or_salvage(row)
    assert (salvaged.namespace, salvaged.timer_id, salvaged.shard_id) == (
        timer.namespace,
        timer.timer_id,
        timer.shard_id,
    )
    assert salvaged.state is TimerState.FAILED
    assert salvaged.next_attempt_at is None
    assert salvaged.failure is not None
    assert salvaged.failure.reason is FailureReason.UNREADABLE


@pytest.mark.parametrize("field", sorted(document_of(TIMER, encode(make_timer(NAMESPACE))).keys() - {"row_type"}))
def test_a_timer_without_a_field_is_readable_or_told(field: str) -> None:
    document = document_of(TIMER, encode(make_timer(NAMESPACE)))
    del document[field]
    row = through_bson(TIMER, document)

    salvaged = decode_or_salvage(row)

    assert salvaged.failure is not None or salvaged == decode(row)


@pytest.mark.parametrize(
    ("uuid", "is_behind"),
    [(None, False), (7, False), (Int64(7), False), ("x", False), ([1], False), (True, True), (NOW, True)],
    ids=repr,
)
def test_the_place_of_a_damaged_value_is_next_to_it(uuid: Any, is_behind: bool) -> None:
    at, found = place_of(TIMER, {"timer_execute_at": NOW, "timer_uuid": uuid}, DUE.order_names)

    assert at == encode(make_timer(NAMESPACE))[TIMER.places["timer_execute_at"]]
    assert found == (b"\xff" * 256 if is_behind else b"")


def test_whole_numbers_of_64_bits_are_plain_again() -> None:
    (revision,) = to_row(TIMER, {"timer_revision": Int64(7)}, ("timer_revision",))
    assert type(revision) is int


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
    assert decode_call(through_bson(SERVICE_CALL, document_of(SERVICE_CALL, encode_call(call)))) == call


@pytest.mark.parametrize("field", ["status", "request_spec", "due_at", "tags", "starred", "attempts", "outcome_meta"])
def test_a_damaged_call_is_told_and_salvaged(field: str) -> None:
    row = through_bson(SERVICE_CALL, {**document_of(SERVICE_CALL, encode_call(CALL)), field: "secret"})

    with pytest.raises(UnreadableError) as raised:
        decode_call(row)
    assert "secret" not in str(raised.value)
    salvaged = decode_or_salvage_call(row)
    assert (salvaged.tenant_id, salvaged.call_id) == (CALL.tenant_id, CALL.call_id)
    assert salvaged.status is CallStatus.FAILED


def test_an_execution_comes_back_as_it_was_or_salvaged() -> None:
    begun = make.begun(CALL)
    (execution,) = begun.executions
    (ended,) = make.concluded(begun.after, execution).executions

    for each in (execution, ended):
        document = document_of(EXECUTION, encode_execution(each))
        assert decode_or_salvage_execution(through_bson(EXECUTION, document)) == each
        for name in ("request_headers", "execution_status", "started_at"):
            damaged = decode_or_salvage_execution(through_bson(EXECUTION, {**document, name: "secret"}))
            assert (damaged.execution_id, damaged.failure) == (each.execution_id, CallFailure.UNREADABLE)
            assert "secret" not in damaged.message


def test_an_event_comes_back_as_it_was_or_is_told() -> None:
    event = make.submitted().events[1]
    document = document_of(EVENT, encode_event(event))

    assert decode_event(through_bson(EVENT, document, READ)).event == event
    with pytest.raises(UnreadableError) as raised:
        decode_event(through_bson(EVENT, {**document, "event_type": "secret"}, READ))
    assert "secret" not in str(raised.value)


def test_what_is_not_of_its_kind_is_damaged() -> None:
    wrong = {"timer_id": 1, "timer_revision": 1.5, "timer_due_at": DatetimeMS(2**62), "timer_payload": None}
    assert to_row(TIMER, wrong, tuple(wrong)) == (DAMAGED,) * 4
    assert to_row(SERVICE_CALL, {"tags": ["a", 1], "starred": 1}, ("tags", "starred")) == (DAMAGED,) * 2
