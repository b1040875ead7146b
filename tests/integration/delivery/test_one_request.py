"""One attempt is one request: what a receiver sees when connections end, at every moment at which they can."""

from __future__ import annotations

from dataclasses import replace

import pytest

from duetime.delivery.port import CallbackResult, TransportError
from duetime.domain.service_calls import Method
from tests.integration.delivery.conftest import Sending
from tests.support.receiver import WAIT_SECONDS, Answer, Exchange, Gate, Receiver, hang_up, held, raw, reply, reset

KEPT = 6
"""Idle connections: libcurl goes through up to six of them with one request."""
CUT_OFF = "the connection, kept from an earlier request, was closed before a response came"
HALF_AN_ANSWER = raw(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", close=True)


def keep_connections(sending: Sending, receiver: Receiver, count: int = KEPT, *, last: Answer | None = None) -> None:
    """``count`` connections that are idle afterwards, each after the answer ``last`` (an empty 200)."""
    gate, known = Gate(), len(sending.results)
    url = receiver.on("/keep", held(gate, last))
    sending.sender.submit([sending.callback(url) for _ in range(count)])
    receiver.wait_for(count, path="/keep")
    gate.open()
    sending.wait_for(known + count)


def send(sending: Sending, url: str, method: Method, body: bytes | None) -> CallbackResult:
    known = len(sending.results)
    sending.sender.submit([replace(sending.callback(url), method=method, body=body)])
    return sending.wait_for(known + 1)[-1]


@pytest.mark.parametrize("ending", [reset, hang_up], ids=["reset", "closed"])
@pytest.mark.parametrize(
    ("method", "body"),
    [
        *((method, b"{}") for method in (Method.POST, Method.PUT, Method.PATCH)),
        *((method, None) for method in Method),
        (Method.POST, b"x" * 500_000),
    ],
)
def test_a_request_that_was_read_on_a_kept_connection_is_not_sent_again(
    sending: Sending, receiver: Receiver, ending: Answer, method: Method, body: bytes | None
) -> None:
    keep_connections(sending, receiver)
    url = receiver.on("/dying", ending)
    result = send(sending, url, method, body)
    assert (result.status, result.error, result.message) == (None, TransportError.PROTOCOL, CUT_OFF)
    assert [request.method for request in receiver.wait_for(1, path="/dying")] == [method]
    assert receiver.connections == KEPT  # and no further connection was tried for it
    assert sending.post(receiver.url("/next")).status == 200  # the handle and its sender go on
    assert len(receiver.wait_for(1, path="/dying")) == 1


@pytest.mark.parametrize("ending", [reset, hang_up], ids=["reset", "closed"])
def test_no_connection_is_made_for_a_request_that_is_not_sent_again(
    sending: Sending, receiver: Receiver, ending: Answer
) -> None:
    """A receiver that is gone would refuse it, and the attempt be told as one that never left."""
    keep_connections(sending, receiver, 1)
    result = sending.post(receiver.on("/dying", ending))
    assert (result.error, result.message) == (TransportError.PROTOCOL, CUT_OFF)
    assert (len(receiver.wait_for(1, path="/dying")), receiver.connections) == (1, 1)


@pytest.mark.parametrize("ending", [reset, hang_up, HALF_AN_ANSWER], ids=["reset", "closed", "half an answer"])
@pytest.mark.parametrize("has_own_connection", [False, True])
def test_every_attempt_is_one_request(
    sending: Sending, receiver: Receiver, ending: Answer, has_own_connection: bool
) -> None:
    """Again and again, over connections that are kept and new ones in turn, as retries would come."""
    url = receiver.on("/dying", ending)
    for attempt in range(1, 11):
        keep_connections(sending, receiver, 2)
        known = len(sending.results)
        sending.sender.submit([replace(sending.callback(url), has_own_connection=has_own_connection)])
        assert sending.wait_for(known + 1)[-1].error is not None
        assert len(receiver.wait_for(attempt, path="/dying")) == attempt


def then(*answers: Answer) -> Answer:
    """One after the other, on one connection."""

    async def answer(exchange: Exchange) -> None:
        for each in answers:
            await each(exchange)

    return answer


@pytest.mark.parametrize("ending", [hang_up, reset], ids=["closed", "reset"])
def test_connections_that_ended_while_they_were_idle_cost_no_attempt(
    sending: Sending, receiver: Receiver, ending: Answer
) -> None:
    """All of them, within the second in which libcurl itself does not look."""
    ends = Gate()
    keep_connections(sending, receiver, last=then(reply(200), held(ends, ending)))
    ends.open()
    receiver.wait_for_ends(KEPT)
    for number in range(1, KEPT + 1):
        result = sending.post(receiver.url("/next"))
        assert (result.status, result.error) == (200, None)
        assert len(receiver.wait_for(number, path="/next")) == number
    connections = receiver.connections
    assert sending.post(receiver.url("/next")).status == 200
    assert receiver.connections == connections  # the new ones are kept


def test_a_connection_that_says_something_by_itself_is_not_used_again(sending: Sending, receiver: Receiver) -> None:
    """As servers do that tell of their idle timeout. It is no answer to the next request."""
    said = Gate()
    url = receiver.on("/", then(reply(200), held(said, then(reply(408), hang_up))), reply(201))
    assert sending.post(url).status == 200
    said.open()
    receiver.wait_for_ends(1)
    assert sending.post(url).status == 201


def test_a_stale_connection_leaves_the_deadline_as_it_was(sending: Sending, receiver: Receiver) -> None:
    url = receiver.on("/", then(reply(200), hang_up), held(Gate()))
    assert sending.post(url).status == 200
    receiver.wait_for_ends(1)
    result = sending.post(url, timeout_seconds=0.3)
    assert result.error is TransportError.TIMEOUT
    assert 0.3 <= result.duration_seconds < WAIT_SECONDS
