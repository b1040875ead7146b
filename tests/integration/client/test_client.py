"""The client, in both its forms, against a server on this machine."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import httpx
import pytest

from duetime.app.api_keys import create_key
from duetime.domain import principals
from duetime.domain.outcomes import RecordStatus
from duetime.testing.contract.builders import failed
from duetime.testing.contract.steps import claim, due, record
from duetime_client import (
    ApiError,
    CallStatus,
    Conflict,
    Duetime,
    DuetimeError,
    EventType,
    FailureReason,
    Forbidden,
    InvalidArgument,
    InvalidRequest,
    NewTimer,
    NotFound,
    PreconditionFailed,
    RawJson,
    RetryPolicy,
    Role,
    TimerState,
    Unauthenticated,
)
from duetime_client import batching as client_batching
from tests.support.call_api import TENANT, URL, CallWorld
from tests.support.call_server import CallServer, call_server
from tests.support.clients import Connect, connecting
from tests.support.clock import NOW
from tests.support.no_tls import NO_TLS

HOUR = timedelta(hours=1)
POLICY = RetryPolicy(max_attempts=3, initial_interval=timedelta(seconds=1.5), backoff_multiplier=1.5)
IN_FORCE = replace(POLICY, max_attempts_duration=timedelta(days=1), max_interval=timedelta(hours=1))
"""As answers show it: what it omits is there."""


@pytest.fixture
def duetime(server: CallServer, connect: Connect) -> Any:
    return connect(server.url, tenant=TENANT)


@pytest.fixture
def timers(duetime: Any) -> Any:
    return duetime.timers()


def fail_due(world: CallWorld) -> None:
    """All timers that are due end as dead letters."""
    namespace = world.store.catalogue.get_namespace("default")
    assert namespace is not None
    for timer in due(world.store, namespace):
        lease = claim(world.store, timer.shard_id)
        assert record(world.store, [failed(timer)], lease) == [RecordStatus.APPLIED]
        world.store.leases.release([lease], now=NOW)


class TestTimers:
    def test_a_timer_is_what_was_asked_for(self, timers: Any) -> None:
        berlin = timezone(timedelta(hours=1))
        timer = timers.create(
            timer_id="order#4711?ü",
            execute_at=datetime(2026, 12, 24, 18, 0, 0, 1500, tzinfo=berlin),
            callback_url=URL,
            payload={"text": "Grüße 🎄", "n": [1, 1.5, None, True]},
            headers={"x-a": "b"},
            retry_policy=POLICY,
            timeout=timedelta(seconds=7),
            expire_after=timedelta(hours=1, milliseconds=500),
            correlation_id="c",
            tags=["a", "b"],
        )

        assert timer == timers.get("order#4711?ü")
        assert timer.id == "order#4711?ü"
        # Up to the millisecond: never before the time that was asked for.
        assert timer.execute_at == datetime(2026, 12, 24, 17, 0, 0, 2000, tzinfo=UTC)
        assert timer.execute_at.tzinfo is UTC
        assert timer.payload == {"text": "Grüße 🎄", "n": [1, 1.5, None, True]}
        assert (timer.headers, timer.tags, timer.correlation_id) == ({"x-a": "b"}, ("a", "b"), "c")
        assert (timer.retry_policy, timer.timeout) == (IN_FORCE, timedelta(seconds=7))
        assert timer.expire_after == timedelta(hours=1, milliseconds=500)
        assert (timer.state, timer.state.name, timer.revision) == ("Scheduled", "SCHEDULED", 1)
        assert (timer.fired_at, timer.failure, timer.attempts) == (None, None, 0)

    def test_without_an_id_the_client_makes_one(self, timers: Any) -> None:
        first, second = (timers.create(callback_url=URL, delay=HOUR) for _ in range(2))
        assert first.id < second.id
        assert first.execute_at == NOW + HOUR

    def test_a_payload_keeps_its_digits(self, world: CallWorld, timers: Any) -> None:
        texts = ["1.10", "1e400", "-0", "9" * 5000, '{"b":1,"a":[ 2 ]}', '"\\u00e9"', "1" + "0" * 30 + ".5"]
        given = {f"t{at}": text for at, text in enumerate(texts)}
        timers.create_many(
            [NewTimer(id=name, callback_url=URL, delay=HOUR, payload=RawJson(text)) for name, text in given.items()]
        )
        namespace = world.store.catalogue.get_namespace("default")
        assert namespace is not None
        stored = {name: world.store.timers.get(namespace, name, now=NOW) for name in given}
        assert {name: timer and timer.content.payload_json for name, timer in stored.items()} == given
        read = {timer.id: timer.payload for timer in timers.list()}
        assert (read["t0"], read["t1"], read["t4"]) == (1.1, Decimal("1e400"), {"b": 1, "a": [2]})
        assert str(read["t3"]) == "9" * 5000

    def test_the_same_again_is_the_same_and_another_is_a_conflict(self, timers: Any) -> None:
        timer = timers.create(timer_id="t", callback_url=URL, delay=HOUR)
        assert timers.create(timer_id="t", callback_url=URL, delay=HOUR) == timer
        with pytest.raises(Conflict) as refusal:
            timers.create(timer_id="t", callback_url=URL, delay=2 * HOUR)
        assert (refusal.value.status, refusal.value.code) == (409, "timer_conflict")
        assert refusal.value.request_id
        assert refusal.value.request_id in str(refusal.value)

    def test_put_replaces(self, timers: Any) -> None:
        assert timers.put("t", callback_url=URL, delay=HOUR, if_absent=True).revision == 1
        timer = timers.put("t", callback_url=URL, delay=HOUR, payload=1, if_revision=1)
        assert (timer.revision, timer.payload) == (2, 1)
        for condition in ({"if_revision": 1}, {"if_absent": True}):
            with pytest.raises(PreconditionFailed):
                timers.put("t", callback_url=URL, delay=HOUR, **condition)

    def test_update_keeps_what_is_not_given_and_clears_what_is_none(self, timers: Any) -> None:
        timers.create(timer_id="t", callback_url=URL, delay=HOUR, payload=1, tags=["a"], expire_after=HOUR)
        timer = timers.update("t", payload=None, expire_after=None, execute_at=NOW + 2 * HOUR, if_revision=1)
        assert (timer.payload, timer.tags, timer.expire_after) == (None, ("a",), None)
        assert timer.execute_at == NOW + 2 * HOUR
        assert timers.update("t") == timer
        with pytest.raises(PreconditionFailed):
            timers.update("t", tags=None, if_revision=1)

    def test_cancel_and_delete(self, timers: Any) -> None:
        timers.create(timer_id="t", callback_url=URL, delay=HOUR)
        with pytest.raises(PreconditionFailed):
            timers.cancel("t", if_revision=7)
        cancelled = timers.cancel("t", if_revision=1)
        assert cancelled.state is TimerState.CANCELLED
        assert timers.get("t") == timers.cancel("t") == cancelled
        assert [each.status for each in timers.cancel_many(["t", "u"])] == [200, 404]
        with pytest.raises(PreconditionFailed):
            timers.delete("t", if_revision=7)
        assert timers.delete("t", if_revision=2).attempt_in_flight is False
        with pytest.raises(NotFound, match="timer_not_found"):
            timers.delete("t")

    def test_any_id_arrives(self, timers: Any) -> None:
        for timer_id in (".", "..", "a b", "base64url:x", "%2F", "a#b", "ü?", "\\", "~", "a:b@c"):
            timers.create(timer_id=timer_id, callback_url=URL, delay=HOUR)
            assert timers.get(timer_id).id == timer_id
            assert timers.fire(timer_id).id == timer_id
            assert list(timers.attempts(timer_id)) == []
            timers.delete(timer_id)

    def test_a_list_goes_over_all_pages(self, timers: Any) -> None:
        timers.create_many([NewTimer(id=f"t{n}", callback_url=URL, delay=n * HOUR, tags=["a"]) for n in range(7)])
        assert {timer.id for timer in timers.list(tag="a", page_size=2)} == {f"t{n}" for n in range(7)}
        found = timers.list(due_from=NOW + HOUR, due_to=NOW + 3 * HOUR, state=TimerState.SCHEDULED, page_size=1)
        assert sorted(timer.id for timer in found) == ["t1", "t2"]
        assert list(timers.list(tag="b")) == []

    def test_dead_letters_are_listed_looked_into_and_redriven(self, world: CallWorld, timers: Any) -> None:
        timers.create_many([NewTimer(id=f"t{n}", callback_url=URL, execute_at=NOW) for n in range(5)])
        fail_due(world)
        letters = list(timers.dead_letters(reason=FailureReason.HTTP_STATUS, page_size=2))
        assert len(letters) == 5
        assert letters[0].failure is not None
        assert (letters[0].failure.reason, letters[0].failure.status) == (FailureReason.HTTP_STATUS, 503)
        with pytest.raises(Conflict, match="timer_finished"):
            timers.fire("t0")
        assert timers.redrive("t0", if_revision=letters[0].revision).state is TimerState.SCHEDULED
        results = timers.redrive_ids(["t1", "t0", "nobody"])
        assert [(each.id, each.status) for each in results] == [("t1", 200), ("t0", 409), ("nobody", 404)]
        assert isinstance(results[2].error, NotFound)
        pages: list[int] = []
        total = timers.redrive_many(page_size=2, on_page=lambda page: pages.append(page.redriven))
        assert (total.redriven, total.skipped, sum(pages)) == (3, 0, 3)
        assert list(timers.dead_letters()) == []

    def test_all_faults_are_told(self, timers: Any) -> None:
        with pytest.raises(InvalidRequest) as refusal:
            timers.create(
                callback_url="nowhere", delay=HOUR, correlation_id="", retry_policy=RetryPolicy(max_attempts=0)
            )
        assert {each.field for each in refusal.value.errors} == {
            "callbackUrl",
            "correlationId",
            "retryPolicy.maxAttempts",
        }
        assert "retryPolicy.maxAttempts: " in str(refusal.value)
        assert isinstance(refusal.value, ApiError)
        assert isinstance(refusal.value, DuetimeError)


class TestBatches:
    def test_each_timer_has_a_result(self, timers: Any) -> None:
        results = timers.create_many(
            [
                NewTimer(id="a", callback_url=URL, delay=HOUR),
                NewTimer(id="b", callback_url="nowhere", delay=HOUR),
                NewTimer(callback_url=URL, delay=HOUR),
                NewTimer(id="a", callback_url=URL, delay=HOUR),
            ]
        )
        assert [each.status for each in results] == [201, 400, 201, 409]
        assert [each.is_ok for each in results] == [True, False, True, False]
        error = results[1].error
        assert isinstance(error, InvalidRequest)
        assert [each.field for each in error.errors] == ["callbackUrl"]
        assert timers.get(results[2].id).id == results[2].id
        removed = timers.delete_many(["a", "b", results[2].id], if_revisions={results[2].id: 9})
        assert [(each.id, each.status) for each in removed] == [("a", 200), ("b", 404), (results[2].id, 412)]
        assert removed[0].attempt_in_flight is False

    def test_a_batch_of_nothing_asks_nothing(self, timers: Any) -> None:
        assert (
            timers.create_many([]) == timers.cancel_many([]) == timers.delete_many([]) == timers.redrive_ids([]) == ()
        )

    def test_many_are_sent_in_parts(self, timers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(client_batching, "MAX_BATCH_ITEMS", 3)
        results = timers.create_many([NewTimer(id=f"t{n}", callback_url=URL, delay=HOUR) for n in range(8)])
        assert [each.id for each in results] == [f"t{n}" for n in range(8)]
        assert all(each.is_ok for each in results)
        assert len(list(timers.list())) == 8
        assert all(each.is_ok for each in timers.delete_many(f"t{n}" for n in range(8)))

    def test_a_batch_for_nobody_is_refused_as_a_whole(self, duetime: Any) -> None:
        with pytest.raises(NotFound, match="namespace_not_found"):
            duetime.timers("nobody").create_many([NewTimer(callback_url=URL, delay=HOUR)])

    def test_a_wrong_item_is_named_and_nothing_is_sent(self, timers: Any) -> None:
        with pytest.raises(InvalidArgument, match=r"timers\[1\]: execute_at: must have an offset"):
            timers.create_many(
                [
                    NewTimer(callback_url=URL, delay=HOUR),
                    NewTimer(callback_url=URL, execute_at=datetime(2026, 12, 24)),
                ]
            )


class TestNamespaces:
    def test_settings_are_kept_changed_and_cleared(self, duetime: Any) -> None:
        created = duetime.namespaces.put("orders", num_shards=2, rate_limit=2.5, max_in_flight=9, retry_policy=POLICY)
        assert (created.num_shards, created.rate_limit, created.max_in_flight) == (2, 2.5, 9)
        assert created.retry_policy == POLICY
        changed = duetime.namespaces.put("orders", max_in_flight=None, if_revision=created.revision)
        assert (changed.rate_limit, changed.max_in_flight) == (2.5, None)
        assert duetime.namespaces.get("orders") == changed
        assert [each.name for each in duetime.namespaces.list(page_size=1)] == ["default", "orders"]
        with pytest.raises(Conflict, match="namespace_conflict"):
            duetime.namespaces.put("orders", num_shards=3)
        with pytest.raises(PreconditionFailed):
            duetime.namespaces.put("orders", rate_limit=1, if_revision=created.revision)

    @pytest.mark.parametrize("kind", ["namespace", "webhook"])
    def test_signing_secrets_rotate(self, duetime: Any, kind: str) -> None:
        secrets = duetime.signing_secrets() if kind == "namespace" else duetime.event_webhook.secrets
        first = secrets.create()
        second = secrets.create(overlap=timedelta(hours=2))
        assert second.previous is not None
        assert (second.previous.id, second.previous.expires_at) == (first.id, NOW + timedelta(hours=2))
        assert [each.id for each in secrets.list()] == [first.id, second.id]
        with pytest.raises(Conflict, match="secret_rotation_in_progress"):
            secrets.create()
        secrets.delete(first.id)
        with pytest.raises(NotFound):
            secrets.delete(first.id)
        assert first.secret.startswith("whsec_")
        assert first.secret not in repr(first)


class TestServiceCalls:
    def test_a_call_is_what_was_asked_for(self, duetime: Any) -> None:
        call = duetime.service_calls.submit(
            name="invoice",
            method="POST",
            url=URL,
            headers={"Authorization": "Bearer s3cret", "x-a": "b"},
            body={"amount": 12.5},
            due_at=NOW + HOUR,
            tags=["a"],
            timeout=timedelta(seconds=9),
            retry_policy=POLICY,
            correlation_id="c",
        )
        assert duetime.service_calls.get(call.id) == call
        assert (call.status, call.due_at, call.tags, call.starred) == ("Scheduled", NOW + HOUR, ("a",), False)
        assert (call.request.method, call.request.body) == ("POST", {"amount": 12.5})
        assert call.request.headers == {"Authorization": "[redacted]", "x-a": "b"}
        assert (call.timeout, call.retry_policy, call.correlation_id) == (timedelta(seconds=9), IN_FORCE, "c")
        assert call.idempotency_key
        (listed,) = duetime.service_calls.list(tags=["a"], status=CallStatus.SCHEDULED, starred=False)
        assert (listed.id, listed.request.body) == (call.id, None)
        assert [each.id for each in duetime.service_calls.upcoming()] == [call.id]

    def test_what_was_submitted_is_changed_starred_and_removed(self, duetime: Any) -> None:
        calls = duetime.service_calls
        call = calls.submit(name="n", url=URL, delay=HOUR, idempotency_key="k")
        assert calls.submit(name="n", url=URL, delay=HOUR, idempotency_key="k") == call
        with pytest.raises(Conflict, match="service_call_conflict"):
            calls.submit(name="other", url=URL, delay=HOUR, idempotency_key="k")
        changed = calls.update(call.id, delay=2 * HOUR, method="PUT", body=[1], tags=["a"], if_revision=1)
        assert (changed.due_at, changed.request.method, changed.request.body) == (NOW + 2 * HOUR, "PUT", [1])
        assert calls.star(call.id).starred
        assert not calls.unstar(call.id).starred
        with pytest.raises(Conflict, match="service_call_not_finished"):
            calls.delete(call.id)
        cancelled = calls.cancel(call.id)
        assert (cancelled.status, cancelled.status.is_finished) == (CallStatus.CANCELLED, True)
        assert calls.cancel(call.id) == cancelled
        assert [event.type for event in calls.follow(call.id, after=6)][-1:] == [EventType.CANCELLED]
        with pytest.raises(Conflict, match="service_call_finished"):
            calls.fire(call.id)
        calls.delete(call.id)
        with pytest.raises(NotFound):
            calls.delete(call.id)

    def test_executions_events_and_reruns(self, world: CallWorld, duetime: Any) -> None:
        calls = duetime.service_calls
        call = calls.submit(name="n", url=URL)
        world.begin(call.id)
        with pytest.raises(Conflict, match="service_call_running"):
            calls.cancel(call.id)
        with pytest.raises(Conflict, match="service_call_not_finished"):
            calls.delete(call.id)
        world.finish(call.id, is_ok=False)
        call = calls.get(call.id)
        assert call.status is CallStatus.FAILED
        assert call.status.is_finished
        assert call.outcome is not None
        (listed,) = calls.executions(call.id)
        execution = calls.execution(call.id, listed.id)
        assert (execution.id, execution.number, execution.status) == (call.outcome.execution_id, 1, "Failed")
        assert execution.request.method == "GET"
        events = list(calls.events(call.id, page_size=2))
        assert [event.sequence for event in events] == [1, 2, 3, 4, 5, 6, 7]
        assert events[-1].type is EventType.FAILED
        assert list(calls.events(call.id, after=5)) == events[5:]
        again = calls.rerun(call.id, delay=HOUR, idempotency_key="k")
        assert again.rerun_of == call.id
        assert calls.rerun(call.id, delay=HOUR, idempotency_key="k") == again

    def test_events_are_followed_to_the_end_of_the_call(self, world: CallWorld, duetime: Any) -> None:
        call = duetime.service_calls.submit(name="n", url=URL)
        seen = []
        for event in duetime.service_calls.follow(call.id, after=1):
            seen.append(event.sequence)
            if event.type is EventType.SCHEDULED:  # the last one so far: what comes now comes by the stream
                world.finish(call.id)
        assert seen == [2, 3, 4, 5, 6, 7]
        assert [event.sequence for event in duetime.service_calls.follow(call.id, after=6)] == [7]
        assert list(duetime.service_calls.follow(call.id, after=7)) == []

    def test_events_of_nobody_are_not_followed(self, duetime: Any) -> None:
        with pytest.raises(NotFound):
            list(duetime.service_calls.follow("0193e5a1-7c00-7abc-8def-0123456789ab"))

    def test_events_go_to_a_webhook(self, duetime: Any) -> None:
        webhook = duetime.event_webhook
        with pytest.raises(NotFound):
            webhook.get()
        assert webhook.put(url=URL, event_types=[EventType.FAILED]).event_types == (EventType.FAILED,)
        assert webhook.get().event_types == (EventType.FAILED,)
        assert webhook.put(url=URL, enabled=False).event_types is None
        assert list(webhook.deliveries()) == []
        webhook.delete()
        with pytest.raises(NotFound):
            webhook.get()


class TestService:
    def test_health_shards_and_the_document(self, duetime: Any) -> None:
        assert duetime.health().is_ok
        assert [shard.shard_id for shard in duetime.shards(page_size=3)] == [0, 1, 2, 3]
        assert duetime.openapi()["info"]["title"] == "Duetime"

    def test_keys_act_with_their_role(self, world: CallWorld, connect: Connect) -> None:
        key = create_key(
            world.store, key_id="k", tenant_id=TENANT, role=principals.Role.ADMIN, name="", expires_at=None, now=NOW
        ).text
        with call_server(world, with_auth=True) as server:
            admin = connect(server.url, tenant=TENANT, api_key=key)
            made = admin.api_keys.create(role=Role.READER, name="r", expires_in=HOUR)
            assert (made.role, made.expires_at) == (Role.READER, NOW + HOUR)
            assert made.key not in repr(made)
            assert {each.role for each in admin.api_keys.list()} == {"admin", "reader"}
            reader = connect(server.url, tenant=TENANT, api_key=made.key)
            with pytest.raises(Forbidden, match="role writer"):
                reader.service_calls.submit(name="n", url=URL)
            with pytest.raises(NotFound):
                list(connect(server.url, tenant="globex", api_key=key).service_calls.list())
            admin.api_keys.delete(made.id)
            with pytest.raises(Unauthenticated) as refusal:
                list(reader.service_calls.list())
            assert made.key not in repr(refusal.value)
            with pytest.raises(Unauthenticated):
                list(connect(server.url, tenant=TENANT).service_calls.list())

    def test_one_client_serves_several_threads(self, server: CallServer, world: CallWorld) -> None:
        with connecting("blocking") as connect:
            timers = connect(server.url).timers()
            threads = [
                threading.Thread(target=lambda n=n: timers.create(timer_id=f"t{n}", callback_url=URL, delay=HOUR))
                for n in range(8)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len(list(timers.list())) == 8

    def test_a_client_of_ones_own_is_used_and_left_open(self, server: CallServer) -> None:
        with httpx.Client(headers={"x-mine": "1"}, verify=NO_TLS) as http:
            with Duetime(f"{server.url}/", http_client=http, user_agent="shop/1") as duetime:
                assert duetime.health().is_ok
            assert not http.is_closed
