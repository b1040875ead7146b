"""The attempt log over the API."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from duetime.domain.attempts import AttemptOutcome, AttemptRecord, append_attempt
from duetime.domain.outcomes import Outcome
from duetime.domain.timers import FailureReason
from duetime.testing.contract.builders import failed, fired, leased, retried
from duetime.testing.contract.steps import claim_shard
from tests.support.api import World
from tests.support.clock import NOW
from tests.support.http import Answer

DUE_NOW = {"id": "t1", "executeAt": "2026-12-20T15:30:00Z", "callbackUrl": "http://receiver.test/callback"}
RETRY = AttemptRecord(
    number=1,
    firing_id="f-1",
    started_at=NOW,
    duration_ms=1500,
    outcome=AttemptOutcome.RETRY,
    reason=FailureReason.TIMEOUT,
    error_class="timeout",
    message="timed out",
    headers={},
)
FIRED = AttemptRecord(
    number=2,
    firing_id="f-1",
    started_at=NOW + timedelta(seconds=4),
    duration_ms=12,
    outcome=AttemptOutcome.FIRED,
    status=200,
    headers={"content-type": "text/plain", "set-cookie": "[redacted]"},
    body="ok\x1b\x9b\u2028",
    body_bytes=70_000,
    body_truncated=True,
)


def record(world: World, outcome: Outcome) -> None:
    shard_id = outcome.timer.shard_id
    lease = claim_shard(world.store, shard_id, "worker", lease_seconds=10, now=NOW)
    assert lease is not None
    world.store.timers.record(leased([outcome], lease), now=NOW)
    world.store.leases.release([lease], now=NOW)


def attempts(world: World, timer_id: str = "t1") -> Answer:
    return world.api.get(f"{world.api.timer(timer_id)}/attempts")


def test_a_timer_that_was_not_tried_has_no_attempts(world: World) -> None:
    world.api.create(DUE_NOW)
    answer = attempts(world)
    assert (answer.status, answer.json()) == (200, {"items": [], "nextCursor": None})


def test_attempts_are_listed_oldest_first(world: World) -> None:
    world.api.create(DUE_NOW)
    log = append_attempt(None, RETRY)
    record(world, replace(retried(world.timer("t1"), next_attempt_at=NOW), attempt_log=log))
    record(world, replace(fired(world.timer("t1")), attempt_log=append_attempt(log, FIRED)))
    answer = attempts(world)
    assert answer.json() == {
        "items": [
            {
                "number": 1,
                "firingId": "f-1",
                "startedAt": "2026-12-20T15:30:00.000Z",
                "finishedAt": "2026-12-20T15:30:01.500Z",
                "durationMs": 1500,
                "outcome": "Retry",
                "status": None,
                "reason": "Timeout",
                "errorClass": "timeout",
                "message": "timed out",
                "headers": {},
                "body": None,
                "bodyBytes": 0,
                "bodyTruncated": False,
            },
            {
                "number": 2,
                "firingId": "f-1",
                "startedAt": "2026-12-20T15:30:04.000Z",
                "finishedAt": "2026-12-20T15:30:04.012Z",
                "durationMs": 12,
                "outcome": "Fired",
                "status": 200,
                "reason": None,
                "errorClass": None,
                "message": None,
                "headers": {"content-type": "text/plain", "set-cookie": "[redacted]"},
                "body": "ok\x1b\x9b\u2028",
                "bodyBytes": 70_000,
                "bodyTruncated": True,
            },
        ],
        "nextCursor": None,
    }
    assert answer.text.isascii()


def test_the_log_is_no_part_of_the_timer(world: World) -> None:
    world.api.create(DUE_NOW)
    record(world, replace(failed(world.timer("t1")), attempt_log=append_attempt(None, RETRY)))
    timer = world.api.read("t1")
    assert timer.json()["attempts"] == 1
    assert timer.json()["failure"] == {
        "reason": "HttpStatus",
        "message": "the receiver answered 503",
        "status": 503,
        "at": "2026-12-20T15:30:00.000Z",
        "escalationId": None,
    }
    assert "timed out" not in timer.text
    assert "timed out" not in world.api.list().text


def test_a_change_keeps_the_log_and_a_replacement_starts_with_none(world: World) -> None:
    world.api.create(DUE_NOW)
    record(world, replace(retried(world.timer("t1"), next_attempt_at=NOW), attempt_log=append_attempt(None, RETRY)))
    assert world.api.patch("t1", {"payload": 2}).status == 200
    assert len(attempts(world).json()["items"]) == 1
    assert world.api.put("t1", DUE_NOW).status == 200
    assert attempts(world).json()["items"] == []


def test_the_log_goes_with_the_timer(world: World) -> None:
    world.api.create(DUE_NOW)
    outcome = fired(world.timer("t1"))
    record(world, replace(outcome, attempt_log=append_attempt(None, FIRED)))
    assert outcome.expires_at is not None
    world.clock.advance((outcome.expires_at - NOW).total_seconds() - 1)
    assert attempts(world).status == 200
    world.clock.advance(1)
    assert (attempts(world).status, attempts(world).code) == (404, "timer_not_found")


def test_a_damaged_log_reads_as_empty(world: World) -> None:
    world.api.create(DUE_NOW)
    record(world, replace(fired(world.timer("t1")), attempt_log="[{"))
    assert attempts(world).json()["items"] == []


def test_what_does_not_exist_has_no_attempts(world: World) -> None:
    assert (attempts(world, "none").status, attempts(world, "none").code) == (404, "timer_not_found")
    answer = world.api.get("/v1/namespaces/none/timers/t1/attempts")
    assert (answer.status, answer.code) == (404, "namespace_not_found")
    assert world.api.call("POST", f"{world.api.timer('t1')}/attempts", "{}").status == 405


def test_ids_that_look_like_routes(world: World) -> None:
    for timer_id in ("attempts", "batch", "fire"):
        assert world.api.create(DUE_NOW | {"id": timer_id}).status == 201
        assert world.api.read(timer_id).json()["id"] == timer_id
        assert attempts(world, timer_id).status == 200
    assert attempts(world, "base64url:YmF0Y2g").status == 200
