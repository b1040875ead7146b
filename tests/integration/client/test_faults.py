"""What the client does when answers are lost, cut short, late or 503s: in both its forms, over real connections."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from duetime_client import (
    NO_RETRIES,
    Conflict,
    InvalidArgument,
    InvalidRequest,
    NewServiceCall,
    NewTimer,
    NotFound,
    RawJson,
    Retries,
    ServerError,
    Throttled,
    Unavailable,
    UnexpectedAnswer,
    Unreachable,
)
from duetime_client import batching as client_batching
from duetime_client import following as client_following
from tests.support.call_api import TENANT, URL, CallWorld
from tests.support.call_server import CallServer
from tests.support.clients import Connect
from tests.support.clock import NOW
from tests.support.faulty_server import (
    FaultyServer,
    answer,
    cut,
    faulty_server,
    hang_up,
    lost,
    passed,
    silence,
    stream,
)

HOUR = timedelta(hours=1)
QUICK = Retries(max_tries=3, first_wait=timedelta(milliseconds=1))
PROBLEM = {"code": "store_unavailable", "detail": "later", "requestId": "r1"}
NOT_READY = {"code": "store_not_ready", "detail": "later"}
IN_USE = {"code": "idempotency_key_in_use", "detail": "later"}
HEALTHY = {"status": "ok", "version": "1", "store": "ok"}


def client(connect: Connect, server: FaultyServer, **options: Any) -> Any:
    return connect(server.url, **{"retries": QUICK, "tenant": TENANT, **options})


def operations(server: FaultyServer) -> list[str]:
    return [asked.method for asked in server.asked]


@pytest.mark.parametrize("fault", [lost, cut, hang_up, answer(503, PROBLEM), answer(502, b"<html>"), answer(429)])
def test_a_create_is_repeated_and_makes_one_timer(server: CallServer, connect: Connect, fault: Any) -> None:
    with faulty_server(fault, upstream_url=server.url) as faulty:
        timers = client(connect, faulty).timers()
        timer = timers.create(callback_url=URL, delay=HOUR)
        first, second = faulty.asked
        assert first.body == second.body
        assert first.headers["x-request-id"] == second.headers["x-request-id"]
        assert [each.id for each in timers.list()] == [timer.id]


def test_a_batch_is_repeated_and_a_delete_knows_its_own_work(server: CallServer, connect: Connect) -> None:
    with faulty_server(lost, lost, upstream_url=server.url) as faulty:
        timers = client(connect, faulty).timers()
        created = timers.create_many([NewTimer(callback_url=URL, delay=HOUR) for _ in range(3)])
        assert [each.status for each in created] == [201, 201, 201]
        faulty.acts = [lost]
        removed = timers.delete_many([created[0].id, created[1].id])
        assert [(each.is_ok, each.attempt_in_flight) for each in removed] == [(True, False), (True, False)]
        faulty.acts = [lost]
        assert timers.delete(created[2].id).attempt_in_flight is None
        with pytest.raises(NotFound):
            timers.delete(created[2].id)


def test_many_submissions_are_repeated_under_their_keys(server: CallServer, connect: Connect) -> None:
    with faulty_server(lost, upstream_url=server.url) as faulty:
        calls = client(connect, faulty).service_calls
        text = json.dumps({"name": "n", "delay": "1h", "request": {"method": "GET", "url": URL}})
        results = calls.submit_many([NewServiceCall(name="n", url=URL, delay=HOUR), RawJson(text)])
        assert [each.status for each in results] == [202, 202]
        ids = [each.id for each in results]
        assert {call.id for call in calls.list()} == set(ids)
        faulty.acts = [lost]
        assert all(each.is_ok for each in calls.cancel_many(ids))
        faulty.acts = [lost]
        assert all(each.is_ok for each in calls.delete_many(ids))


def test_a_submission_and_a_rerun_are_repeated_under_one_key(
    server: CallServer, world: CallWorld, connect: Connect
) -> None:
    with faulty_server(lost, upstream_url=server.url) as faulty:
        calls = client(connect, faulty).service_calls
        call = calls.submit(name="n", url=URL)
        world.finish(call.id)
        faulty.acts = [lost]
        again = calls.rerun(call.id)
        assert {each.id for each in calls.list()} == {call.id, again.id}
        faulty.acts = [lost]
        calls.delete(call.id)
        assert [each.id for each in calls.list()] == [again.id]


def test_every_write_is_repeated_and_done_once(server: CallServer, connect: Connect) -> None:
    with faulty_server(upstream_url=server.url) as faulty:
        timers = client(connect, faulty).timers()
        first = timers.create(timer_id="t", callback_url=URL, delay=HOUR)
        assert first.revision == 1
        uses: list[Callable[[], Any]] = [
            lambda: timers.put("t", callback_url=URL, delay=timedelta(minutes=5)),
            lambda: timers.put("t", callback_url=URL, delay=HOUR, if_revision=2),
            lambda: timers.update("t", delay=2 * HOUR),
            lambda: timers.update("t", tags=["a"], if_revision=4),
            lambda: timers.fire("t"),
        ]
        for revision, use in enumerate(uses, start=2):
            faulty.asked.clear()
            faulty.acts = [lost, answer(409, IN_USE, retry_after="0")]
            assert use().revision == revision
            assert len({asked.headers["idempotency-key"] for asked in faulty.asked}) == 1
            assert len(faulty.asked) == 3
        faulty.acts = [lost]
        assert timers.put("new", callback_url=URL, delay=HOUR, if_absent=True).revision == 1


def test_a_secret_whose_answer_was_lost_is_not_made_again(server: CallServer, connect: Connect) -> None:
    with faulty_server(upstream_url=server.url) as faulty:
        duetime = client(connect, faulty)
        faulty.acts = [lost]
        with pytest.raises(Conflict) as failure:
            duetime.api_keys.create(role="reader")
        assert failure.value.code == "secret_shown_once"
        assert len(list(duetime.api_keys.list())) == 1


def test_every_kind_of_write_is_repeated(server: CallServer, connect: Connect) -> None:
    with faulty_server(upstream_url=server.url) as faulty:
        duetime = client(connect, faulty)
        timers = duetime.timers()
        timers.create(timer_id="t", callback_url=URL, delay=HOUR)
        for use in (
            lambda: timers.get("t"),
            lambda: timers.put("t", callback_url=URL, delay=HOUR),
            lambda: timers.put("t", callback_url=URL, execute_at=NOW + timedelta(days=36500)),
            lambda: timers.update("t", tags=["b"]),
            lambda: timers.update("t", delay=2 * HOUR),
            lambda: list(timers.list()),
            lambda: timers.redrive_many(),
            lambda: duetime.namespaces.put("default", max_in_flight=3),
            lambda: duetime.event_webhook.put(url=URL),
            lambda: duetime.event_webhook.delete(),
        ):
            faulty.asked.clear()
            faulty.acts = [lost]
            use()
            assert len(faulty.asked) == 2


def test_tries_have_an_end(connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
    with faulty_server(*[hang_up] * 9) as faulty:
        with pytest.raises(Unreachable, match=faulty.url) as failure, caplog.at_level("INFO", "duetime_client"):
            client(connect, faulty, api_key="dtk_s3cret").timers().get("t")
        assert caplog.text.count("getTimer is tried again") == 2
        assert "s3cret" not in caplog.text
        assert {failure.value.request_id} == {asked.headers["x-request-id"] for asked in faulty.asked}
        assert len(faulty.asked) == 3
        assert faulty.asked[0].headers["authorization"] == "Bearer dtk_s3cret"
        assert "s3cret" not in repr(failure.value)
        with pytest.raises(Unreachable):
            client(connect, faulty, retries=NO_RETRIES).timers().get("t")
        assert len(faulty.asked) == 4


def test_a_server_that_is_not_there_did_nothing(connect: Connect) -> None:
    with pytest.raises(Unreachable) as failure:
        connect("http://127.0.0.1:1", retries=QUICK).timers().fire("t")
    assert not failure.value.may_have_been_done


def test_a_closed_client_says_so(server: CallServer, connect: Connect) -> None:
    closed = connect(server.url, tenant=TENANT)
    closed.close()
    for act in (
        closed.health,
        lambda: closed.timers("orders").get("a"),
        lambda: next(closed.service_calls.follow("a")),
    ):
        with pytest.raises(InvalidArgument, match="the client is closed"):
            act()


def test_silence_has_an_end(connect: Connect) -> None:
    with faulty_server(silence) as faulty:
        duetime = client(connect, faulty, timeout=timedelta(milliseconds=50), retries=NO_RETRIES)
        with pytest.raises(Unreachable, match=r"(?i)timeout|timed out"):
            duetime.timers().get("t")


def test_a_wait_that_is_too_long_is_left_to_the_caller(connect: Connect) -> None:
    with faulty_server(answer(503, PROBLEM, retry_after="3600"), answer(429, retry_after="3600")) as faulty:
        timers = client(connect, faulty).timers()
        for family in (Unavailable, Throttled):
            with pytest.raises(family) as failure:
                timers.get("t")
            assert failure.value.retry_after == HOUR
        assert len(faulty.asked) == 2


def test_a_batch_that_breaks_off_tells_what_is_known(
    server: CallServer, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_batching, "MAX_BATCH_ITEMS", 2)
    for module in ("blocking", "asynchronous"):
        monkeypatch.setattr(f"duetime_client.{module}.batches.MAX_BATCH_ITEMS", 2)
    with faulty_server(passed, *[hang_up] * 9, upstream_url=server.url) as faulty:
        timers = client(connect, faulty).timers()
        results = timers.create_many([NewTimer(id=f"t{n}", callback_url=URL, delay=HOUR) for n in range(6)])
        assert [each.status for each in results] == [201, 201, None, None, None, None]
        assert [type(each.error) for each in results[2:]] == [Unreachable] * 4
        assert [each.id for each in results] == [f"t{n}" for n in range(6)]
        assert len(faulty.asked) == 4
        faulty.acts = [answer(413, {"code": "payload_too_large", "detail": "too much"})]
        with pytest.raises(InvalidRequest, match="too much"):
            timers.cancel_many(["t0"])


def test_ids_that_were_not_reached_are_redriven_by_another_request(connect: Connect) -> None:
    def items(*statuses: int) -> Any:
        found = [{"id": "x", "status": status, "problem": {"code": "c", "status": status}} for status in statuses]
        return answer(200, {"redriven": 1, "skipped": 0, "examined": 1, "nextCursor": None, "items": found})

    with faulty_server(items(200, 503, 503), items(200, 409), items(503)) as faulty:
        timers = client(connect, faulty).timers()
        results = timers.redrive_ids(["a", "b", "c"])
        assert [(each.id, each.status) for each in results] == [("a", 200), ("b", 200), ("c", 409)]
        assert [asked.json() for asked in faulty.asked] == [{"ids": ["a", "b", "c"]}, {"ids": ["b", "c"]}]
        assert isinstance(results[2].error, Conflict)
        # Where none gets on, it is told.
        assert isinstance(timers.redrive_ids(["a"])[0].error, Unavailable)


@pytest.mark.parametrize(
    ("act", "error", "message"),
    [
        (answer(200, b"<html>", content_type="text/html"), UnexpectedAnswer, "not JSON"),
        (answer(200, {"id": "t"}), UnexpectedAnswer, "Timer: namespace is missing"),
        (answer(200, b"[" * 100_000), UnexpectedAnswer, "not JSON"),
        (answer(302, b"", location="http://127.0.0.1:1/"), UnexpectedAnswer, "HTTP 302"),
        (answer(404, b"<html>", content_type="text/html"), NotFound, "without a word .HTTP 404"),
        (answer(500, {"code": "internal", "detail": "not served"}), ServerError, "not served .HTTP 500, internal"),
        (answer(400, [1]), InvalidRequest, "without a word"),
        (answer(400, {"errors": [{"x": 1}, 2], "detail": 7}), InvalidRequest, "without a word"),
    ],
)
def test_an_answer_of_something_else_is_told_as_it_is(connect: Connect, act: Any, error: Any, message: str) -> None:
    with faulty_server(act) as faulty, pytest.raises(error, match=message):
        client(connect, faulty).timers().get("t")


@pytest.mark.parametrize("problem", [b"<html>", {"code": "namespace_not_found"}, {"code": "route_not_found"}])
def test_a_404_about_something_else_is_no_removal(connect: Connect, problem: Any) -> None:
    with faulty_server(hang_up, answer(404, problem)) as faulty, pytest.raises(NotFound):
        client(connect, faulty).timers().delete("t")


def test_a_newer_server_is_understood(server: CallServer, connect: Connect) -> None:
    def newer(faulty: FaultyServer, asked: Any) -> bytes:
        _, _, body = faulty.forward(asked).partition(b"\r\n\r\n")
        timer = json.loads(body) | {"state": "paused", "mood": {"a": 1}}
        content = json.dumps(timer).encode()
        return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(content) + content

    with faulty_server(newer, upstream_url=server.url) as faulty:
        timer = client(connect, faulty).timers().create(callback_url=URL, delay=HOUR)
    assert (timer.state, str(timer.state), timer.state.value) == ("paused", "paused", "paused")


def test_a_server_that_is_not_ready_says_so(connect: Connect) -> None:
    unwell = answer(503, HEALTHY | {"status": "unavailable", "store": "not_ready"})
    with faulty_server(unwell, answer(503, b"Service Unavailable"), answer(200, HEALTHY)) as faulty:
        duetime = client(connect, faulty)
        assert (duetime.health().is_ok, duetime.health().is_ok) == (False, True)
        assert len(faulty.asked) == 3


# -- streams -------------------------------------------------------------------------------------------------------


def envelope(sequence: int, type_: str = "ExecutionStarted") -> dict[str, Any]:
    return {
        "id": f"e{sequence}",
        "type": type_,
        "tenantId": TENANT,
        "aggregateId": "c1",
        "sequence": sequence,
        "occurredAt": "2026-12-20T15:30:00.000Z",
        "correlationId": "c",
        "causationId": None,
        "payload": {},
    }


def event(sequence: int) -> bytes:
    one = envelope(sequence)
    return f"id: {sequence}\nevent: {one['type']}\ndata: {json.dumps(one)}\n\n".encode()


def page(*sequences: int, complete: bool = False) -> Any:
    items = [envelope(sequence) for sequence in sequences]
    return answer(200, {"items": items, "nextAfter": max(sequences, default=0), "complete": complete})


END = b'event: end\ndata: {"reason":"finished"}\n\n'


@pytest.fixture
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_following, "POLL_SECONDS", 0.001)


def followed(connect: Connect, faulty: FaultyServer) -> tuple[list[int], list[str]]:
    found = [each.sequence for each in client(connect, faulty).service_calls.follow("c1")]
    return found, [asked.headers["last-event-id"] for asked in faulty.asked]


@pytest.mark.usefixtures("_no_pauses")
def test_a_stream_that_breaks_off_is_resumed(connect: Connect) -> None:
    half = b"retry: 1\n\n" + event(1) + b": still here\n\n" + event(2) + event(3)[:20]
    with faulty_server(
        stream(half),
        hang_up,
        stream(b"", is_whole=True),
        answer(503, PROBLEM, retry_after="0"),
        stream(event(2) + event(3) + event(4)[:-1], is_whole=True),  # one again, and one without an end
        stream(event(4) + END + event(5)),
    ) as faulty:
        assert followed(connect, faulty) == ([1, 2, 3, 4], ["0", "2", "2", "2", "2", "3"])


@pytest.mark.usefixtures("_no_pauses")
def test_a_stream_that_is_over_is_not_asked_for_again(connect: Connect) -> None:
    with faulty_server(stream(event(1)), answer(204)) as faulty:
        assert followed(connect, faulty) == ([1], ["0", "1"])


@pytest.mark.usefixtures("_no_pauses")
def test_a_server_without_streams_is_polled(connect: Connect) -> None:
    with faulty_server(page(1), page(), page(2, complete=True)) as faulty:
        assert followed(connect, faulty) == ([1, 2], ["0", "1", "1"])


@pytest.mark.usefixtures("_no_pauses")
def test_where_there_are_too_many_streams_events_are_polled(connect: Connect) -> None:
    full = answer(503, {"code": "too_many_streams", "detail": "full"}, retry_after="0")
    with faulty_server(full, page(1, complete=True)) as faulty:
        assert followed(connect, faulty) == ([1], ["0", "0"])
        assert faulty.asked[1].headers["accept"] == "application/json"


@pytest.mark.usefixtures("_no_pauses")
def test_a_stream_that_stays_away_is_given_up(connect: Connect) -> None:
    with faulty_server(stream(event(1)), *[hang_up] * 9) as faulty:
        events = client(connect, faulty).service_calls.follow("c1")
        assert next(events).sequence == 1
        with pytest.raises(Unreachable):
            next(events)
        assert len(faulty.asked) == 5


def test_a_stream_that_is_to_come_back_much_later_is_left_to_the_caller(connect: Connect) -> None:
    with faulty_server(answer(503, PROBLEM, retry_after="3600")) as faulty, pytest.raises(Unavailable):
        followed(connect, faulty)


@pytest.mark.usefixtures("_no_pauses")
@pytest.mark.parametrize("data", [b"data: {}\n\n", b"data: [\n\n", b"data: 1\n\n"])
def test_a_stream_of_something_else_is_told(connect: Connect, data: bytes) -> None:
    with faulty_server(stream(data)) as faulty, pytest.raises(UnexpectedAnswer, match="not understood"):
        followed(connect, faulty)


def test_a_stream_can_be_left(server: CallServer, connect: Connect) -> None:
    calls = connect(server.url, tenant=TENANT).service_calls
    call = calls.submit(name="n", url=URL, delay=HOUR)
    events = calls.follow(call.id)
    assert next(events).sequence == 1
    events.close()
