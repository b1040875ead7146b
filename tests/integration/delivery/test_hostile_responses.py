"""Answers by which a receiver could try to break a poller: bounded by the deadline and the caps, and none harmful."""

from __future__ import annotations

import gzip
import resource
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from duetime.delivery.port import MAX_HEAD_BYTES, MAX_RESPONSE_BYTES, CallbackResult, TransportError
from duetime.domain.retry import MAX_RETRY_AFTER_SECONDS
from duetime.engine.response.classify import Disposition, classify
from tests.integration.delivery.conftest import Sending
from tests.support.receiver import Answer, Receiver, drip, raw, reply

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
KIB = b"y" * 1024
DEADLINE_SECONDS = 0.5
NOW = datetime(2026, 12, 20, tzinfo=UTC)


def endless(start: bytes, drop: bytes) -> Answer:
    """As fast as it is taken."""
    return drip(start, drop, interval_seconds=0)


# -- without end ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [
        endless(b"", KIB),
        endless(b"HTTP/1.1 200 ", KIB),
        endless(OK, b"X: y\r\n" * 200),
        endless(OK + b"X: ", KIB),
        endless(OK, b"X-Folded: 1\r\n " + KIB + b"\r\n"),
        endless(OK, b"Set-Cookie: a=" + KIB + b"\r\n"),
        endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 40),
        endless(b"", b"HTTP/1.1 103 Early Hints\r\nLink: <" + KIB + b">\r\n\r\n"),
        endless(CHUNKED, b"0" * 1024),
        endless(CHUNKED + b"1;", KIB),
        endless(CHUNKED + b"1\r\nx\r\n0\r\n", b"X-Trailer: " + KIB + b"\r\n"),
        endless(CHUNKED + b"1\r\nx\r\n0\r\nX: ", KIB),
        endless(OK + b"Content-Length: 9999999999\r\n\r\n", b"\0" * 65536),
        endless(OK + b"\r\n", b"\xff" * 65536),
        endless(OK + b"Content-Encoding: gzip\r\n\r\n", gzip.compress(b"0" * 1_000_000)),
        endless(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n", KIB),
        endless(b"HTTP/1.1 204 No Content\r\n\r\n", KIB),
    ],
    ids=[
        *("no line", "status line", "headers", "header line", "folded header", "cookies", "100s", "103s"),
        *(
            "chunk size",
            "chunk extension",
            "trailers",
            "trailer line",
            "length",
            "until closed",
            "gzip",
            "101",
            "204",
        ),
    ],
)
def test_an_answer_without_end_has_one(sending: Sending, receiver: Receiver, answer: Answer) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = sending.post(receiver.on("/", answer), timeout_seconds=DEADLINE_SECONDS)
    assert result.duration_seconds < DEADLINE_SECONDS + 5  # and a machine that is busy; it could go on for ever
    assert len(result.body) <= MAX_RESPONSE_BYTES
    assert sum(map(len, result.head)) <= MAX_HEAD_BYTES
    assert result.error in (None, TransportError.PROTOCOL, TransportError.TIMEOUT)
    assert len(result.message) <= 200
    assert (result.error is None) == (result.message == "")
    # By another name: what still comes over a connection that was kept spoils the next answer of the same host only.
    assert sending.post(f"http://127.0.0.1:{receiver.port}/next").status == 200
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown_kib < 64 * 1024  # the receiver lives in this process as well


@pytest.mark.parametrize(
    "drop", [b"\r\n", b"H", b"HTTP/1.1 100 Continue\r\n\r\n"], ids=["empty lines", "letters", "100s"]
)
def test_a_slow_drip_ends_at_the_deadline(sending: Sending, receiver: Receiver, drop: bytes) -> None:
    result = sending.post(receiver.on("/", drip(b"", drop, interval_seconds=0.02)), timeout_seconds=0.3)
    assert result.error in (TransportError.TIMEOUT, TransportError.PROTOCOL)
    assert result.duration_seconds < 5  # on a machine that is busy; the drip itself has no end


def test_many_that_drip_hold_nobody_up(sending: Sending, receiver: Receiver) -> None:
    url = receiver.on("/drip", drip(CHUNKED, b"1\r\nx\r\n", interval_seconds=0.01))
    sending.sender.submit([sending.callback(url, timeout_seconds=60) for _ in range(100)])
    receiver.wait_for(100, path="/drip")
    for _ in range(20):
        assert sending.post(receiver.url("/quick")).status == 200
    assert len(sending.results) == 20, "all of those that drip are still in flight"


# -- malformed -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\r\n\r\n",
        b"\0" * 100,
        b"<html>hello</html>",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x00\x00\x12\x04\x00\x00\x00\x00\x00",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"HTTP/0.9 200 OK\r\n\r\n",
        b"HTTP/1.1 99 Low\r\n\r\n",
        b"HTTP/1.1 -1 Negative\r\n\r\n",
        b"HTTP/1.1 99999999999999999999 High\r\n\r\n",
        b"HTTP/1.1\r\n\r\n",
        b"HTTP/9.9 200 OK\r\n\r\n",
        OK + b"No colon\r\n\r\n",
        OK + b"X\0Y: nul\r\nContent-Length: 0\r\n\r\n",
        OK + b": no name\r\nContent-Length: 0\r\n\r\n",
        OK + b"Content-Length: 99999999999999999999999999\r\n\r\nx",
        OK + b"Content-Length: 0x10\r\n\r\nx",
        OK + b"Content-Length: ten\r\n\r\nx",
        OK + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        OK + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
        OK + b"Transfer-Encoding: \xff\r\n\r\nx",
        CHUNKED + b"ffffffffffffffffffffff\r\nx",
        CHUNKED + b"-1\r\nx\r\n0\r\n\r\n",
        CHUNKED + b"\r\n",
        CHUNKED + b"1\r\nxy\r\n0\r\n\r\n",
        OK + b"Location: \xff\xfe\r\nRetry-After: \xff\r\nContent-Length: 0\r\n\r\n",
    ],
)
def test_a_malformed_answer_is_a_result_like_any_other(sending: Sending, receiver: Receiver, data: bytes) -> None:
    """Whatever libcurl makes of it, reading the result does not raise, and the next callback is not affected."""
    result = sending.post(receiver.on("/", raw(data, close=True)), timeout_seconds=5)
    assert result.error in (None, TransportError.PROTOCOL)
    assert result.message.isprintable()
    assert classify(result, now=NOW).disposition in (Disposition.FIRED, Disposition.RETRY)
    receiver.wait_for_ends(1)
    assert sending.post(receiver.url("/next")).status == 200


def test_a_second_answer_is_not_taken_for_that_to_the_next_callback(sending: Sending, receiver: Receiver) -> None:
    """Those who call one host share connections: what came with an answer is not the next one's."""
    forged = b"HTTP/1.1 410 Gone\r\nContent-Length: 6\r\n\r\nforged"
    url = receiver.on("/", raw(OK + b"Content-Length: 0\r\n\r\n" + forged * 5))
    for _ in range(5):
        assert (sending.post(url).status, sending.post(receiver.url("/next")).status) == (200, 200)


def test_a_body_where_none_may_be_is_not_read(sending: Sending, receiver: Receiver) -> None:
    for status in (204, 304):
        answer = raw(b"HTTP/1.1 %d S\r\nContent-Length: 12\r\n\r\n" % status + b'{"ok":false}')
        result = sending.post(receiver.on("/", answer))
        assert (result.status, result.body) == (status, b"")
        assert sending.post(receiver.url("/next")).status == 200


# -- what it means -------------------------------------------------------------------------------------------------


def verdict(result: CallbackResult) -> Disposition:
    return classify(result, now=NOW).disposition


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (raw(b"HTTP/1.1 204 No Content\r\n\r\n"), Disposition.FIRED),
        (reply(200, b"OK"), Disposition.FIRED),
        (reply(200, b"<html>" * 20_000), Disposition.FIRED),
        (reply(202, b'\xff\xfe{"ok":false}'), Disposition.FIRED),
        (reply(200, gzip.compress(b'{"ok":false}'), [("Content-Encoding", "gzip")]), Disposition.FIRED),
        (reply(200, b'{"ok":false' + b" " * MAX_RESPONSE_BYTES + b"}"), Disposition.FIRED),
        (reply(200, b'{"ok":false}'), Disposition.RETRY),
        (reply(200, b'\xef\xbb\xbf{"ok":false}'), Disposition.RETRY),
        (reply(200, b'{"ok":false,"nextExecuteAt":"9999-12-31T23:59:59-12:00"}'), Disposition.RETRY),
        (reply(200, b'{"nextExecuteAt":"%s"}' % (b"9" * 60_000)), Disposition.FIRED),
        (reply(200, b'{"nextExecuteAt":"2027-01-01T00:00:00Z"}'), Disposition.RESCHEDULE),
        (reply(301, b"", [("Location", "/elsewhere")]), Disposition.RETRY),
        (reply(410), Disposition.FAILED),
        (raw(b"HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n"), Disposition.RETRY),
    ],
)
def test_what_is_made_of_it(sending: Sending, receiver: Receiver, answer: Answer, expected: Disposition) -> None:
    assert verdict(sending.post(receiver.on("/", answer))) is expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("17", 17.0),
        ("0", 0.0),
        ("86400", MAX_RETRY_AFTER_SECONDS),
        ("9223372036854775808", MAX_RETRY_AFTER_SECONDS),
        ("9" * 400, MAX_RETRY_AFTER_SECONDS),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
        ("-5", None),
        ("1e9", None),
        ("17 apples", None),
        ("NaN", None),
        ("soon", None),
        ("", None),
        ("Sun, 99 Dec 2026 15:31:00 GMT", None),
        ("Fri, 31 Dec 99999 23:59:59 GMT", None),
        ("20 Dec 2026", None),
    ],
)
def test_retry_after_is_clamped_and_absent_when_malformed(
    sending: Sending, receiver: Receiver, value: str, expected: float | None
) -> None:
    url = receiver.on("/", reply(503, b"", [("Retry-After", value)]), reply(503))
    answer = classify(sending.post(url), now=NOW)
    assert (answer.disposition, answer.retry_after_seconds) == (Disposition.RETRY, expected)
    assert sending.post(url).retry_after is None  # nothing of it is left on the handle


def test_retry_after_may_be_a_date(sending: Sending, receiver: Receiver) -> None:
    at = format_datetime(NOW + timedelta(seconds=100), usegmt=True)
    url = receiver.on("/", reply(429, b"", [("Retry-After", at)]))
    assert classify(sending.post(url), now=NOW).retry_after_seconds == 100
