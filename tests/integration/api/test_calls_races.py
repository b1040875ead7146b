"""Changes of service calls that meet other changes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from duetime.api.handler import build_handler
from duetime.api.routes import call_routes
from duetime.domain.call_steps import Transition
from duetime.domain.service_calls import CallStatus
from duetime.stores.port.calls import ApplyStatus
from tests.support.call_api import CallWorld
from tests.support.http import Api
from tests.support.parts import Overlay


class ContendedCalls(Overlay):
    """A call store in which ``interfere`` does something just before each of the first ``times`` changes."""

    def __init__(self, world: CallWorld, interfere: Callable[[], object], times: int) -> None:
        super().__init__(world.calls)
        self._calls = world.calls
        self._interfere = interfere
        self._times = times

    def _contend(self) -> None:
        if self._times:
            self._times -= 1
            self._interfere()

    def apply(self, transitions: list[Transition], **more: Any) -> list[ApplyStatus]:
        self._contend()
        return self._calls.apply(transitions, **more)

    def delete(self, *arguments: Any, **more: Any) -> Any:
        self._contend()
        return self._calls.delete(*arguments, **more)


def contended(calls: CallWorld, interfere: Callable[[], object], times: int) -> Api:
    assert calls.context.calls is not None
    store: Any = ContendedCalls(calls, interfere, times)
    context = replace(calls.context, calls=replace(calls.context.calls, store=store))
    return Api(build_handler(context, call_routes()))


def test_a_change_that_loses_a_race_is_made_on_what_the_other_left(calls: CallWorld) -> None:
    call_id = calls.submitted()["id"]
    api = contended(calls, lambda: calls.begin(call_id), 1)
    answer = api.call("PATCH", calls.path(call_id), {"starred": True})
    assert (answer.status, answer.json()["status"], answer.json()["starred"]) == (200, "Running", True)
    assert calls.call(call_id).revision == 3


def test_a_due_time_that_loses_against_the_start_is_told_so(calls: CallWorld) -> None:
    call_id = calls.submitted()["id"]
    api = contended(calls, lambda: calls.begin(call_id), 1)
    answer = api.call("PATCH", calls.path(call_id), {"delay": "1h"})
    assert (answer.status, answer.code) == (409, "service_call_running")


def test_a_condition_that_held_and_holds_no_more_is_a_412(calls: CallWorld) -> None:
    one, two = calls.submitted()["id"], calls.submitted()["id"]
    api = contended(calls, lambda: calls.begin(one), 1)
    assert api.call("PATCH", calls.path(one), {"starred": True}, headers={"if-match": '"1"'}).status == 412
    calls.finish(two)
    api = contended(calls, lambda: calls.patch(two, {"starred": True}), 1)
    assert api.call("DELETE", calls.path(two), headers={"if-match": '"3"'}).status == 412


def test_a_rerun_is_of_the_revision_that_was_read(calls: CallWorld) -> None:
    call_id = calls.submitted()["id"]
    tag = f'"{calls.finish(call_id).revision}"'
    calls.patch(call_id, {"starred": True})
    assert calls.post(call_id, "rerun", headers={"if-match": tag}).code == "revision_mismatch"
    assert len(calls.everything()) == 1
    assert calls.post(call_id, "rerun", headers={"if-match": f'"{calls.call(call_id).revision}"'}).status == 202


def test_any_revision_is_one_even_when_it_changes_in_between(calls: CallWorld) -> None:
    call_id = calls.submitted()["id"]
    calls.finish(call_id)
    api = contended(calls, lambda: calls.patch(call_id, {"starred": True}), 1)
    assert api.call("DELETE", calls.path(call_id), headers={"if-match": "*"}).status == 204


def test_who_is_never_first_is_asked_to_come_again(calls: CallWorld) -> None:
    call_id = calls.submitted()["id"]
    names = iter(range(100))
    api = contended(calls, lambda: calls.patch(call_id, {"name": f"n{next(names)}"}), 100)
    answer = api.call("PATCH", calls.path(call_id), {"starred": True})
    assert (answer.status, answer.code) == (503, "store_unavailable")


def test_racing_changes_are_all_made(calls: CallWorld) -> None:
    call_id = calls.submitted()["id"]
    barrier = threading.Barrier(4)
    bodies: list[dict[str, Any]] = [{"starred": True}, {"name": "n"}, {"tags": ["t"]}, {"request": {"body": 1}}]
    answers = []

    def change(body: dict[str, Any]) -> None:
        barrier.wait(10)
        answers.append(calls.patch(call_id, body).status)

    threads = [threading.Thread(target=change, args=(body,)) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    after = calls.call(call_id)
    assert answers == [200] * 4
    assert (after.revision, after.starred, after.name, after.tags) == (5, True, "n", ("t",))
    assert after.request.body_json == "1"


def test_a_cancel_that_loses_against_the_start_is_told_so(calls: CallWorld) -> None:
    call_id = calls.submitted()["id"]
    api = contended(calls, lambda: calls.begin(call_id), 1)
    answer = api.call("POST", calls.path(call_id, "cancel"))
    assert (answer.status, answer.code) == (409, "service_call_running")
    assert calls.call(call_id).status is CallStatus.RUNNING
