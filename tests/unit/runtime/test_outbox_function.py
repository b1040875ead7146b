"""What an invocation does with batches of the stream and with the schedule; the stream's records are made up."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from duetime.calls.publishing import ref_of
from duetime.domain.errors import InvalidInput
from duetime.runtime.outbox_function import OutboxFunction, SweepFailed
from tests.support.clock import NOW, FakeClock
from tests.support.logs import actions
from tests.support.outbox import FakeOutbox, RecordingPublisher, make_event

SCHEDULED = {"detail-type": "Scheduled Event"}


@dataclass
class Context:
    aws_request_id: str = "request-1"
    remaining_seconds: float = 60.0

    def get_remaining_time_in_millis(self) -> int:
        return int(self.remaining_seconds * 1000)


@dataclass
class World:
    clock: FakeClock = field(default_factory=FakeClock)
    outbox: FakeOutbox = field(default_factory=FakeOutbox)
    publisher: RecordingPublisher = field(default_factory=RecordingPublisher)
    reported: list[dict[str, tuple[str, float]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.function = OutboxFunction(
            self.outbox,
            [self.publisher],
            calls=self.outbox,
            clock=self.clock,
            report=lambda metrics: self.reported.append(dict(metrics)),
            sweep_after_seconds=120,
            new_id=lambda: "any",
        )

    def batch(self, *records: dict[str, Any]) -> list[str]:
        """The sequence numbers (from 1) of the records that failed."""
        for at, record in enumerate(records, 1):
            record.setdefault("dynamodb", {})["SequenceNumber"] = str(at)
        answer = self.function({"Records": list(records)}, Context())
        return [failure["itemIdentifier"] for failure in answer["batchItemFailures"]]


def written(call_id: str) -> dict[str, Any]:
    """A record that tells of new events."""
    image = {"tenant_id": {"S": "acme"}, "row_type": {"S": "EVENT"}, "sort_key": {"S": f"EVENT#{call_id}#0000000001"}}
    return {"eventName": "INSERT", "dynamodb": {"NewImage": image}}


@pytest.fixture
def world() -> World:
    return World()


def test_events_are_read_from_the_table_in_order_whatever_the_records_say(world: World) -> None:
    world.outbox.append(*(make_event("a", number) for number in (1, 2, 3)), make_event("b", 1))
    assert world.batch(written("b"), written("a"), written("a"), {}) == []
    assert world.publisher.sequences("a") == [1, 2, 3]
    assert world.publisher.sequences("b") == [1]
    assert world.outbox.waiting == []
    assert world.reported == [{"EventsPublished": ("Count", 4.0)}]


def test_a_record_that_comes_again_publishes_nothing_again(world: World) -> None:
    world.outbox.append(make_event("a", 1))
    for _ in range(3):
        assert world.batch(written("a")) == []
    assert world.publisher.sequences("a") == [1]


def test_the_records_of_a_call_that_failed_are_reported_and_no_others(world: World) -> None:
    world.publisher.broken_calls = {"bad"}
    world.outbox.append(make_event("bad", 1), make_event("good", 1), make_event("bad", 2))
    assert world.batch(written("bad"), written("good"), written("bad")) == ["1", "3"]
    assert [ref_of(event).call_id for event in world.outbox.waiting] == ["bad", "bad"]
    world.publisher.broken_calls = set()
    # Lambda repeats the batch from the first failure on.
    assert world.batch(written("bad"), written("good"), written("bad")) == []
    assert world.publisher.sequences("bad") == [1, 2]
    assert world.publisher.sequences("good") == [1]


def test_what_could_not_be_marked_is_reported_and_comes_again(world: World) -> None:
    world.outbox.append(make_event("a", 1))
    world.outbox.is_marking_down = True
    assert world.batch(written("a")) == ["1"]
    world.outbox.is_marking_down = False
    assert world.batch(written("a")) == []
    assert world.publisher.sequences("a") == [1, 1]


def test_a_table_that_does_not_answer_fails_every_record(world: World) -> None:
    world.outbox.append(make_event("a", 1))
    world.outbox.is_down = True
    assert world.batch(written("a"), {}, written("b")) == ["1", "3"]


def test_a_damaged_record_is_told_of_and_blocks_nobody(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.outbox.append(make_event("a", 1))
    assert (
        world.batch({"eventName": "INSERT", "dynamodb": {"NewImage": {"row_type": {"S": "EVENT"}}}}, written("a"))
        == []
    )
    assert world.publisher.sequences("a") == [1]
    assert "outbox.record_unreadable" in actions(caplog)


def test_nothing_is_begun_shortly_before_lambdas_deadline(world: World) -> None:
    world.outbox.append(make_event("a", 1))
    record = written("a")
    record["dynamodb"]["SequenceNumber"] = "7"
    answer = world.function({"Records": [record]}, Context(remaining_seconds=19))
    assert answer == {"batchItemFailures": [{"itemIdentifier": "7"}]}
    assert world.publisher.taken == []


def test_the_schedule_publishes_what_is_old_and_leaves_the_rest_to_the_stream(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    old = NOW - timedelta(seconds=300)
    world.outbox.append(make_event("lost", 1, occurred_at=old), make_event("new", 1))
    summary = world.function(SCHEDULED, Context())
    assert summary == {"published": 1, "failedCalls": 0, "oldestSeconds": 300.0}
    assert [event.aggregate_id for event in world.publisher.taken] == ["lost"]
    assert world.reported == [{"EventsPublished": ("Count", 1.0), "OutboxOldest": ("Seconds", 300.0)}]
    assert "outbox.swept" in actions(caplog)


def test_a_schedule_that_finds_nothing_says_so_and_logs_nothing(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    assert world.function(SCHEDULED, Context())["oldestSeconds"] == 0
    assert world.reported == [{"OutboxOldest": ("Seconds", 0.0)}]
    assert caplog.records == []


def test_the_schedule_goes_on_past_a_call_that_fails_and_then_says_so(world: World) -> None:
    old = NOW - timedelta(seconds=300)
    world.publisher.broken_calls = {"bad"}
    world.outbox.append(make_event("bad", 1, occurred_at=old))
    world.outbox.append(*(make_event("good", number, occurred_at=old) for number in range(1, 452)))
    with pytest.raises(SweepFailed, match="1 calls wait: recording: refused"):
        world.function(SCHEDULED, Context())
    assert world.publisher.sequences("good") == list(range(1, 452))


@pytest.mark.parametrize("event", [{}, {"Records": 7}, {"detail-type": "Other"}])
def test_any_other_event_is_refused(world: World, event: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        world.function(event, Context())
