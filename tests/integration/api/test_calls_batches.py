"""Many service calls in one request: each has a result of its own, in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from duetime.app.in_parts import AT_ONCE, BUDGET_SECONDS
from duetime.domain.call_steps import Transition
from duetime.domain.errors import CallUnreadable, StoreError, StoreUnavailable
from duetime.stores.port.calls import ApplyStatus, CallRef
from tests.support.call_api import BODY, OTHER, CallWorld, call_world_over
from tests.support.http import Answer, outcomes
from tests.support.parts import Overlay

ABSENT = "0193e5a1-7c00-7abc-8def-0123456789ab"


def send(calls: CallWorld, what: str, *items: Any, **more: Any) -> Answer:
    return calls.api.call("POST", calls.path(what), {"serviceCalls": list(items)}, **more)


def submit(calls: CallWorld, *items: Any, **more: Any) -> list[str | None]:
    return [item_id for item_id, _, _ in outcomes(send(calls, "batch", *items, **more))]


def over(world: CallWorld, **parts: Any) -> CallWorld:
    """The same with some parts of the store in front of it."""
    return call_world_over(Overlay(world.store, **parts), clock=world.clock)


class TestSubmit:
    def test_each_succeeds_or_fails_alone(self, calls: CallWorld) -> None:
        known = calls.submitted(idempotencyKey="known")["id"]
        calls.stored.clear()
        answer = send(
            calls,
            "batch",
            BODY | {"delay": "1h", "tags": ["a"], "request": BODY["request"] | {"method": "POST", "body": 1.10}},
            BODY | {"idempotencyKey": "new"},
            BODY | {"idempotencyKey": "known"},
            BODY | {"idempotencyKey": "known", "name": "other"},
            BODY | {"idempotencyKey": "new"},
            BODY | {"colour": "red"},
            {"name": "no request"},
            "no object",
            BODY,
        )
        found = outcomes(answer)
        first, second, last = (calls.call(found[at][0] or "") for at in (0, 1, 8))
        assert found == [
            (first.call_id, 202, None),
            (second.call_id, 202, None),
            (known, 200, None),
            (None, 409, "duplicate_id"),
            (None, 409, "duplicate_id"),
            (None, 400, "invalid_input"),
            (None, 400, "invalid_input"),
            (None, 400, "invalid_input"),
            (last.call_id, 202, None),
        ]
        assert (first.tags, second.idempotency_key, last.idempotency_key) == (("a",), "new", None)
        assert sorted(timer.timer_id for timer in calls.stored) == sorted(
            each.call_id for each in (first, second, last)
        )
        assert outcomes(send(calls, "batch", BODY | {"idempotencyKey": "new", "name": "other"})) == [
            (None, 409, "service_call_conflict")
        ]

    def test_five_hundred_are_the_most(self, calls: CallWorld) -> None:
        assert len(set(submit(calls, *[BODY] * 500))) == 500
        assert send(calls, "batch", *[BODY] * 501).status == 400
        assert outcomes(send(calls, "batch")) == []
        assert send(calls, "batch", BODY, headers={"x-correlation-id": "c"}).status == 200
        assert len(calls.everything()) == 501

    def test_the_correlation_id_of_the_request_is_that_of_its_calls(self, calls: CallWorld) -> None:
        ids = submit(calls, BODY, BODY | {"correlationId": "own"}, headers={"x-correlation-id": "c"})
        assert [calls.call(each or "").correlation_id for each in ids] == ["c", "own"]

    def test_a_repeated_request_is_carried_out_once(self, calls: CallWorld) -> None:
        first = submit(calls, BODY, BODY, headers={"idempotency-key": "k"})
        assert submit(calls, BODY, BODY, headers={"idempotency-key": "k"}) == first
        assert len(calls.everything()) == 2

    def test_a_request_that_died_before_its_response_was_kept_meets_what_it_made(self, calls: CallWorld) -> None:
        def put(*arguments: Any, **more: Any) -> Any:
            if calls.has_calls():
                raise StoreUnavailable("the process has died")
            return catalogue.put_idempotency_record(*arguments, **more)

        catalogue = calls.store.catalogue
        dying = over(calls, catalogue=Overlay(catalogue, put_idempotency_record=put))
        first = submit(dying, BODY, BODY | {"delay": "1h"}, headers={"idempotency-key": "k"})
        calls.clock.advance(60)
        again = send(calls, "batch", BODY, BODY | {"delay": "1h"}, headers={"idempotency-key": "k"})
        assert outcomes(again) == [(each, 200, None) for each in first]
        assert len(calls.everything()) == 2

    def test_what_the_database_refuses_harms_itself_alone(self, calls: CallWorld) -> None:
        def apply(transitions: Sequence[Transition], **more: Any) -> list[ApplyStatus]:
            """Stores a part of a batch before it refuses one of it."""
            good = [each for each in transitions if each.after.name != "bad"]
            statuses = calls.calls.apply(good, **more)
            if len(good) < len(transitions):
                raise StoreError("refused")
            return statuses

        refusing = over(calls, calls=Overlay(calls.calls, apply=apply))
        found = outcomes(send(refusing, "batch", BODY, BODY | {"name": "bad"}, BODY | {"idempotencyKey": "k"}))
        assert [(status, code) for _, status, code in found] == [(202, None), (507, "store_refused"), (202, None)]
        assert sorted(each.call_id for each in calls.everything()) == sorted(each for each, _, _ in found if each)


class TestCancelAndDelete:
    def test_each_succeeds_or_fails_alone(self, calls: CallWorld) -> None:
        waiting, changed, running, done = (calls.submitted(delay="1h")["id"] for _ in range(4))
        others = calls.submitted(tenant=OTHER)["id"]
        calls.patch(changed, {"starred": True})
        calls.begin(running)
        calls.finish(done)
        items = (
            {"id": waiting},
            {"id": changed, "revision": 1},
            {"id": running},
            {"id": done},
            {"id": others},
            {"id": ABSENT},
            {"id": "nobody"},
            {"id": waiting},
            {"revision": 1},
            7,
        )
        refused = [
            (changed, 412, "revision_mismatch"),
            (others, 404, "service_call_not_found"),
            (ABSENT, 404, "service_call_not_found"),
            ("nobody", 404, "service_call_not_found"),
            (waiting, 409, "duplicate_id"),
            (None, 400, "invalid_input"),
            (None, 400, "invalid_input"),
        ]
        assert outcomes(send(calls, "batch-cancel", *items)) == [
            (waiting, 200, None),
            refused[0],
            (running, 409, "service_call_running"),
            (done, 409, "service_call_finished"),
            *refused[1:],
        ]
        assert (calls.call(waiting).status, calls.call(changed).status) == ("Cancelled", "Scheduled")
        assert outcomes(send(calls, "batch-cancel", {"id": waiting})) == [(waiting, 200, None)]
        assert outcomes(send(calls, "batch-delete", *items)) == [
            (waiting, 200, None),
            refused[0],
            (running, 409, "service_call_not_finished"),
            (done, 200, None),
            *refused[1:],
        ]
        assert {call.call_id for call in calls.everything()} == {changed, running, others}

    def test_one_that_others_change_meanwhile_is_cancelled_as_they_leave_it(self, calls: CallWorld) -> None:
        ids = submit(calls, *[BODY | {"delay": "1h"}] * 3)
        busy = [ids[1]]

        def apply(transitions: Sequence[Transition], **more: Any) -> list[ApplyStatus]:
            while busy:
                calls.patch(busy.pop() or "", {"starred": True})
            return calls.calls.apply(transitions, **more)

        racing = over(calls, calls=Overlay(calls.calls, apply=apply))
        found = outcomes(send(racing, "batch-cancel", *({"id": each} for each in ids)))
        assert found == [(each, 200, None) for each in ids]
        assert [(call.status, call.starred) for call in map(calls.call, filter(None, ids))] == [
            ("Cancelled", False),
            ("Cancelled", True),
            ("Cancelled", False),
        ]

    def test_an_unreadable_one_can_only_be_removed(self, calls: CallWorld) -> None:
        good, bad = calls.submitted(delay="1h")["id"], calls.submitted(delay="1h")["id"]
        calls.post(good, "cancel")
        calls.post(bad, "cancel")

        def get(refs: Sequence[CallRef], **more: Any) -> Any:
            if any(ref.call_id == bad for ref in refs):
                raise CallUnreadable("it cannot be read")
            return calls.calls.get(refs, **more)

        spoilt = over(calls, calls=Overlay(calls.calls, get=get))
        items = [{"id": good}, {"id": bad}]
        assert outcomes(send(spoilt, "batch-cancel", *items)) == [
            (good, 200, None),
            (bad, 409, "service_call_unreadable"),
        ]
        assert outcomes(send(spoilt, "batch-delete", *items)) == [(good, 200, None), (bad, 200, None)]

    @pytest.mark.parametrize(("what", "done"), [("batch-cancel", AT_ONCE), ("batch-delete", 1)])
    def test_those_that_are_not_reached_in_time_are_to_be_sent_again(
        self, calls: CallWorld, what: str, done: int
    ) -> None:
        def slow(act: Callable[..., Any]) -> Callable[..., Any]:
            def acted(*arguments: Any, **more: Any) -> Any:
                calls.clock.advance(BUDGET_SECONDS + 1)
                return act(*arguments, **more)

            return acted

        ids = submit(calls, *[BODY | {"delay": "1h"}] * (AT_ONCE + 2))
        items = [{"id": each} for each in ids]
        if what == "batch-delete":
            send(calls, "batch-cancel", *items)
        slowly = over(
            calls, calls=Overlay(calls.calls, apply=slow(calls.calls.apply), delete=slow(calls.calls.delete))
        )
        statuses = [status for _, status, _ in outcomes(send(slowly, what, *items))]
        assert statuses == [200] * done + [503] * (len(ids) - done)
