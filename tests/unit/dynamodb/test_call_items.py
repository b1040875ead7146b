"""Service calls, executions and events as items, and back."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duetime.domain.call_events import CallEvent, CallEventType
from duetime.domain.executions import Execution, ExecutionStatus, LoggedMessage
from duetime.domain.service_calls import (
    CallFailure,
    CallOutcome,
    CallStatus,
    Method,
    RequestSpec,
    ServiceCall,
    timer_of,
)
from duetime.domain.times import MAX_INSTANT, MIN_INSTANT, format_instant, round_down
from duetime.stores.dynamodb import items as timer_items
from duetime.stores.dynamodb.calls import keys
from duetime.stores.dynamodb.calls.event_items import decode_events, encode_events
from duetime.stores.dynamodb.calls.execution_items import (
    INLINE_MESSAGE_BYTES,
    decode_execution,
    encode_execution,
    keys_apart,
)
from duetime.stores.dynamodb.calls.items import INLINE_BODY_BYTES, decode_call, encode_call, encode_timer
from duetime.stores.dynamodb.calls.salvage import decode_or_salvage_call, decode_or_salvage_execution
from duetime.stores.dynamodb.items import Unreadable
from tests.support import calls as make
from tests.support.clock import NOW

instants = st.datetimes(
    min_value=MIN_INSTANT.replace(tzinfo=None),
    max_value=MAX_INSTANT.replace(tzinfo=None),
    timezones=st.just(NOW.tzinfo),
).map(round_down)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
ids = st.uuids().map(str)
maybe = st.none()


def requests() -> st.SearchStrategy[RequestSpec]:
    return st.builds(
        RequestSpec,
        method=st.sampled_from(Method),
        url=texts,
        headers_json=maybe | st.dictionaries(texts, texts, max_size=3).map(json.dumps),
        body_json=maybe | texts,
        body_bytes=st.integers(0, INLINE_BODY_BYTES),
    )


def calls() -> st.SearchStrategy[ServiceCall]:
    return st.builds(
        ServiceCall,
        tenant_id=st.sampled_from(["acme", "a.b-c_d"]),
        call_id=ids,
        shard_id=st.integers(0, 10**6),
        name=texts,
        request=requests(),
        digest=texts,
        status=st.sampled_from(CallStatus),
        revision=st.integers(1, 10**9),
        submitted_at=instants,
        updated_at=instants,
        due_at=instants,
        registered_at=instants,
        reached_at=maybe | instants,
        started_at=maybe | instants,
        finished_at=maybe | instants,
        wake_at=maybe | instants,
        timeout_seconds=st.integers(1, 900),
        retry_policy_json=maybe | st.just('{"maxAttempts": 3}'),
        correlation_id=texts,
        idempotency_key=maybe | texts,
        rerun_of=maybe | ids,
        tags=st.lists(texts, max_size=20).map(tuple),
        starred=st.booleans(),
        attempts=st.integers(0, 1000),
        execution_id=maybe | ids,
        outcome=maybe
        | st.builds(
            CallOutcome,
            execution_id=ids,
            http_status=maybe | st.integers(100, 599),
            reason=maybe | st.sampled_from(CallFailure),
            message=texts,
        ),
        event_count=st.integers(0, 10**6),
        last_event_id=maybe | ids,
        expires_at=maybe | instants,
    )


def messages() -> st.SearchStrategy[LoggedMessage]:
    return st.builds(
        LoggedMessage,
        headers=st.lists(st.tuples(texts, texts), max_size=3).map(tuple),
        body=maybe | texts | st.just("x" * INLINE_MESSAGE_BYTES),
        body_bytes=st.integers(0, 10**9),
        is_truncated=st.booleans(),
        body_is_base64=st.booleans(),
    )


def executions() -> st.SearchStrategy[Execution]:
    return st.builds(
        Execution,
        tenant_id=st.just("acme"),
        call_id=ids,
        execution_id=ids,
        number=st.integers(1, 10**6),
        status=st.sampled_from(ExecutionStatus),
        started_at=instants,
        deadline_at=instants,
        method=st.sampled_from(Method),
        url=texts,
        request=messages(),
        finished_at=maybe | instants,
        duration_ms=maybe | st.integers(0, 10**7),
        response_status=maybe | st.integers(100, 599),
        response=maybe | messages(),
        failure=maybe | st.sampled_from(CallFailure),
        message=texts,
    )


@given(calls())
def test_a_call_is_read_back_as_it_was(call: ServiceCall) -> None:
    assert decode_call(encode_call(call)) == call


@given(calls())
def test_its_timer_is_one_that_the_poller_reads(call: ServiceCall) -> None:
    assert timer_items.decode(encode_timer(call)) == replace(timer_of(call), expires_at=call.expires_at)


@given(executions())
def test_an_execution_is_read_back_as_it_was(execution: Execution) -> None:
    item, apart = encode_execution(execution)
    assert keys_apart(item) == {part: keys.key_of(message) for part, message in apart.items()}

    completed = item | {part: message["message"] for part, message in apart.items()}

    assert decode_execution(completed) == execution


@given(st.lists(st.tuples(st.sampled_from(CallEventType), texts, maybe | ids), min_size=1, max_size=4), instants)
def test_events_are_read_back_as_they_were(given_events: list[tuple[Any, ...]], at: datetime) -> None:
    events = [
        CallEvent(
            event_id=make.id_at(NOW),
            type=kind,
            tenant_id="acme",
            aggregate_id=make.id_at(NOW, 1),
            sequence=7 + number,
            occurred_at=at,
            correlation_id="c",
            causation_id=cause,
            payload_json=json.dumps({"text": payload}),
        )
        for number, (kind, payload, cause) in enumerate(given_events)
    ]

    assert decode_events(encode_events(events)) == events


def test_a_call_stands_in_the_indexes_that_it_belongs_to() -> None:
    call = make.submitted().after
    names = ("status_key", "name_key", "correlation_key", "due_key", "starred_key")

    def indexed(call: ServiceCall) -> list[str]:
        return [name for name in names if name in encode_call(call)]

    assert indexed(call) == ["status_key", "name_key", "correlation_key", "due_key"]
    assert indexed(replace(call, starred=True)) == list(names)
    assert indexed(replace(call, status=CallStatus.RUNNING)) == ["status_key", "name_key", "correlation_key"]


@pytest.mark.parametrize(
    "missing", ["status_key", "url", "digest", "name_key", "updated_at", "submitted_at", "shard_id"]
)
def test_what_is_left_of_a_broken_call_is_shown(missing: str) -> None:
    call = make.submitted(tags=("a",)).after
    item = encode_call(call)
    del item[missing]

    with pytest.raises(Unreadable, match=missing):
        decode_call(item)
    shown = decode_or_salvage_call(item)

    assert (shown.tenant_id, shown.call_id, shown.status) == (call.tenant_id, call.call_id, CallStatus.FAILED)
    assert shown.outcome is not None
    assert shown.outcome.reason is CallFailure.UNREADABLE


def test_what_is_left_of_a_broken_execution_is_shown() -> None:
    execution = make.begun(make.submitted().after).executions[0]
    item, _ = encode_execution(execution)
    del item["request"]

    shown = decode_or_salvage_execution(item)

    assert (shown.call_id, shown.execution_id) == (execution.call_id, execution.execution_id)
    assert (shown.status, shown.failure) == (ExecutionStatus.FAILED, CallFailure.UNREADABLE)


def test_an_error_quotes_nothing_of_the_item() -> None:
    item = encode_call(make.submitted().after)
    item["outcome"] = {"S": "s3cret"}

    with pytest.raises(Unreadable) as caught:
        decode_call(item)
    assert "s3cret" not in str(caught.value)


# -- keys ---------------------------------------------------------------------------------------------------------


@given(
    st.lists(
        st.tuples(st.text(st.characters(exclude_categories=["Cs"], min_codepoint=1), max_size=4), ids), max_size=8
    )
)
def test_name_keys_sort_by_name_and_then_the_newest_first(named: list[tuple[str, str]]) -> None:
    by_key = sorted(named, key=lambda each: keys.name_index_key(*each).encode())
    newest_first = sorted(sorted(named, key=lambda each: each[1], reverse=True), key=lambda each: each[0].encode())

    assert by_key == newest_first


@given(instants)
def test_dates_bound_the_ids_of_their_calls(at: datetime) -> None:
    assert keys.first_id(at) <= make.id_at(at, 0)
    assert make.id_at(at, 0) > keys.last_id(at)
    assert "0" == keys.first_id(None) < make.id_at(at) < keys.last_id(None)


def test_keys_name_what_they_are_of() -> None:
    call_id = make.id_at(NOW)
    assert keys.call_id_of(keys.call_key("t", call_id)["sort_key"]["S"]) == call_id
    assert keys.call_id_of(keys.tag_key("t", "a#b", call_id)["sort_key"]["S"]) == call_id
    assert keys.call_id_of_event(keys.event_sort_key(call_id, 12)) == call_id
    assert keys.sequence_of(keys.event_sort_key(call_id, 12)) == 12
    assert keys.ids_of_execution(keys.execution_key("t", call_id, "e")["sort_key"]["S"]) == (call_id, "e")
    assert keys.event_sort_key(call_id, 9) < keys.event_sort_key(call_id, 10) < keys.events_end(call_id)
    assert keys.due_index_key(NOW, call_id) == f"{format_instant(NOW)}#{call_id}"
    assert keys.tag_prefix("a") + keys.LAST < keys.tag_prefix("a!")
