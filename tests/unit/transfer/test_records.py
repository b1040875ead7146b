from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings

from duetime.domain.occurrences import OccurrenceRecord, OccurrenceState, PastOccurrence
from duetime.testing.contract.builders import NOW, make_namespace, make_timer
from duetime.transfer.models import read_value
from duetime.transfer.records import Value, record_of
from tests.unit.transfer.strategies import values


@given(values)
@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
def test_what_a_line_holds_is_what_was_written(value: Value) -> None:
    line = record_of(value).line

    assert read_value(line) == value
    assert b"\n" not in line
    assert record_of(read_value(line)).line == line


TIMER = make_timer(make_namespace(), "t1", payload_json='{"secret": 1.10}')


def changed(**fields: object) -> bytes:
    line = json.loads(record_of(TIMER).line)
    for name, value in fields.items():
        place = line["content"] if name in line["content"] else line
        place[name] = value
        if value == "gone":
            del place[name]
    return json.dumps(line).encode()


def without_number() -> bytes:
    line = OccurrenceRecord(number=1, state=OccurrenceState.FIRED, scheduled_at=NOW, recorded_at=NOW)
    past = PastOccurrence(namespace="orders", schedule_id="s", shard_id=0, line=line)
    return record_of(past).line.replace(b'"number":1', b'"number":0')


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (changed(executeAt="2026-12-20T15:30:00"), "timer.content.executeAt: must be an RFC 3339 time"),
        (changed(executeAt=5), "timer.content.executeAt: must be an RFC 3339 time"),
        (changed(revision="1"), "timer.revision: Input should be a valid integer"),
        (changed(revision=0), "timer.revision: Input should be greater than or equal to 1"),
        (changed(revision=2**63), "timer.revision: Input should be less than or equal to"),
        (changed(revision=True), "timer.revision: Input should be a valid integer"),
        (changed(state="waiting"), "timer.state: Input should be"),
        (changed(colour="red"), "timer.colour: Extra inputs are not permitted"),
        (changed(digest="gone"), "timer.digest: Field required"),
        (changed(state="Fired"), "a timer has nextAttemptAt unless it has finished"),
        (without_number(), "an execution, and a line of the history, has a number of 1 or more"),
        (changed(kind="timber"), "Input tag 'timber' found using 'kind'"),
        (changed(kind="gone"), "Unable to extract tag"),
        (b"[1]", "Input should be"),
        (b'{"kind": "timer"', "Invalid JSON"),
        (b"\xff", "Invalid JSON"),
        (b'{"kind":"secret","name":"n","value":"%"}', "secret.value: must be base64"),
    ],
)
def test_a_line_that_is_no_record_is_refused_with_its_field(line: bytes, message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        read_value(line)

    assert str(caught.value).startswith(message)
    assert "1.10" not in str(caught.value)
