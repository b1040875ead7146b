"""One callback at a time: what goes out, and what every kind of answer becomes."""

from __future__ import annotations

import gzip
import json
import socket
import sys
from dataclasses import replace

import pytest

from duetime.delivery.port import MAX_HEAD_BYTES, MAX_RESPONSE_BYTES, TransportError
from duetime.domain.service_calls import Method
from tests.integration.delivery.conftest import Sending
from tests.support.receiver import WAIT_SECONDS, Gate, Receiver, drip, hang_up, held, raw, reply, reset

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def test_the_request_is_what_the_callback_says_and_little_more(sending: Sending, receiver: Receiver) -> None:
    body = '{"payload":{"n":12345678901234567890,"f":1.10,"s":"żółw 🐢"}}'.encode()
    headers = ("Content-Type: application/json", "User-Agent: Duetime/9", "webhook-id: id-1", "X-Own: a: b")
    sending.sender.submit([sending.callback(receiver.url("/a/b?c=d&e=%20"), body=body, headers=headers)])
    assert sending.wait_for(1)[0].status == 200
    (request,) = receiver.requests
    assert (request.method, request.path, request.version) == ("POST", "/a/b?c=d&e=%20", "HTTP/1.1")
    assert request.body == body
    assert dict(request.headers) == {
        "host": f"localhost:{receiver.port}",
        "accept": "*/*",
        "content-type": "application/json",
        "user-agent": "Duetime/9",
        "webhook-id": "id-1",
        "x-own": "a: b",
        "content-length": str(len(body)),
    }
    assert len(request.headers) == 7


def test_a_body_over_a_mebibyte_is_sent_without_asking_first(sending: Sending, receiver: Receiver) -> None:
    body = b'"' + b"x" * 1_500_000 + b'"'
    sending.sender.submit([sending.callback(receiver.url(), body=body)])
    assert sending.wait_for(1)[0].status == 200
    assert receiver.requests[0].body == body
    assert receiver.requests[0].header("expect") is None


def test_a_reused_handle_carries_nothing_over(sending: Sending, receiver: Receiver) -> None:
    url = receiver.on("/", reply(200, b'{"ok":false}', [("Retry-After", "7")]), reply(200))
    first = sending.callback(url, body=b"x" * 100_000, headers=("A: 1", "B: 2"))
    second = sending.callback(url, body=b"", headers=("B: 3",))
    sending.sender.submit([first])
    assert sending.wait_for(1)[0].body == b'{"ok":false}'
    sending.sender.submit([second])
    result = sending.wait_for(2)[1]
    assert (result.key, result.status, result.body, result.retry_after) == (second.key, 200, b"", None)
    request = receiver.requests[1]
    assert request.body == b""
    assert (request.header("a"), request.header("b")) == (None, "3")


@pytest.mark.parametrize("method", Method)
@pytest.mark.parametrize("body", [None, b"", b"hello", b"x" * 50_000])
def test_any_method_with_and_without_a_body(
    sending: Sending, receiver: Receiver, method: Method, body: bytes | None
) -> None:
    callback = replace(
        sending.callback(receiver.url("/m"), headers=("Content-Type:", "User-Agent:")), method=method, body=body
    )
    sending.sender.submit([callback])
    assert sending.wait_for(1)[0].status == 200
    (request,) = receiver.requests
    assert (request.method, request.body) == (method, body or b"")
    length = None if body is None else str(len(body))
    assert dict(request.headers) == {"host": f"localhost:{receiver.port}", "accept": "*/*"} | (
        {} if length is None else {"content-length": length}
    )


def test_a_reused_handle_takes_any_method_after_any_other(sending: Sending, receiver: Receiver) -> None:
    kinds = [
        (method, body, is_alone)
        for method in Method
        for body in (None, b"", b"{}", b"x" * 50_000)
        for is_alone in (False, True)
    ]
    order = [kind for first in kinds[::3] for second in kinds for kind in (first, second)]
    for number, (method, body, is_alone) in enumerate(order, 1):
        callback = sending.callback(receiver.url("/m"))
        sending.sender.submit([replace(callback, method=method, body=body, has_own_connection=is_alone)])
        assert sending.wait_for(number)[-1].status == 200
    assert [(request.method, request.body) for request in receiver.requests] == [
        (method, body or b"") for method, body, _ in order
    ]


def test_an_idle_handle_keeps_no_large_body(sending: Sending, receiver: Receiver) -> None:
    """There may be a thousand of them, and a body may be a megabyte."""
    body = b"x" * 300_000
    callbacks = [sending.callback(receiver.url(), body=body) for _ in range(3)]
    held_by_us = sys.getrefcount(body)
    for number, callback in enumerate(callbacks, 1):
        sending.sender.submit([callback])
        assert sending.wait_for(number)[-1].status == 200
        assert sys.getrefcount(body) == held_by_us


def test_characters_beyond_ascii(sending: Sending, receiver: Receiver) -> None:
    """Percent-encoded UTF-8 in the URL, Latin-1 in headers, which have nothing else."""
    headers = ("X-Own: café", "X-Empty;")
    sending.sender.submit([sending.callback(receiver.url("/ż"), headers=headers)])
    sending.sender.submit([sending.callback(receiver.url("/"), headers=("X-Own: żółw",))])
    results = {result.key: result for result in sending.wait_for(2)}
    assert results[1].status == 200
    (request,) = receiver.requests
    assert request.path == "/%C5%BC"
    assert (request.header("x-own"), request.header("x-empty")) == ("café", "")
    assert results[2].error is TransportError.REFUSED_URL
    assert "ż" not in results[2].message


@pytest.mark.parametrize("status", [200, 202, 204, 299, 304, 400, 404, 408, 410, 425, 429, 500, 503, 599])
def test_the_status_is_reported(sending: Sending, receiver: Receiver, status: int) -> None:
    url = receiver.on("/", raw(f"HTTP/1.1 {status} S\r\nContent-Length: 0\r\n\r\n".encode()))
    result = sending.post(url)
    assert (result.status, result.error, result.body, result.body_truncated) == (status, None, b"", False)
    assert 0 < result.duration_seconds < WAIT_SECONDS


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_not_followed(sending: Sending, receiver: Receiver, status: int) -> None:
    url = receiver.on("/", reply(status, b"moved", [("Location", receiver.url("/elsewhere"))]))
    result = sending.post(url)
    assert (result.status, result.body) == (status, b"moved")
    assert [request.path for request in receiver.requests] == ["/"]


@pytest.mark.parametrize(
    ("status", "body", "value", "expected"),
    [
        (503, b"", "17", "17"),
        (429, b"busy", "0", "0"),
        (503, b"", "Wed, 21 Oct 2015 07:28:00 GMT", "Wed, 21 Oct 2015 07:28:00 GMT"),
        (503, b"", "nonsense", "nonsense"),
        (200, b'{"ok":false}', "30", "30"),
        (200, b"", "30", None),
    ],
)
def test_retry_after_is_told_as_it_came_where_it_can_matter(
    sending: Sending, receiver: Receiver, status: int, body: bytes, value: str, expected: str | None
) -> None:
    url = receiver.on("/", reply(status, body, [("Retry-After", value)]))
    assert sending.post(url).retry_after == expected


def test_interim_answers_are_passed_over(sending: Sending, receiver: Receiver) -> None:
    url = receiver.on("/", raw(b"HTTP/1.1 103 Early\r\nX: y\r\n\r\nHTTP/1.1 201 C\r\nContent-Length: 2\r\n\r\nhi"))
    result = sending.post(url)
    assert (result.status, result.body) == (201, b"hi")


# -- how much is read ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("excess", [-1, 0, 1])
def test_an_answer_is_read_up_to_the_cap(sending: Sending, receiver: Receiver, excess: int) -> None:
    whole = bytes(range(256)) * 257
    url = receiver.on("/", reply(500, whole[: MAX_RESPONSE_BYTES + excess]))
    result = sending.post(url)
    assert result.status == 500
    assert result.body == whole[: min(MAX_RESPONSE_BYTES, MAX_RESPONSE_BYTES + excess)]
    assert result.body_truncated == (excess > 0)
    assert sending.post(receiver.url("/next")).body_truncated is False


def test_an_endless_answer_is_cut_off_and_keeps_its_status(sending: Sending, receiver: Receiver) -> None:
    url = receiver.on("/", drip(CHUNKED, b"2000\r\n" + b"x" * 0x2000 + b"\r\n", interval_seconds=0))
    result = sending.post(url)
    assert (result.status, result.body_truncated) == (200, True)
    assert result.body == b"x" * MAX_RESPONSE_BYTES


def test_nothing_is_unpacked(sending: Sending, receiver: Receiver) -> None:
    packed = gzip.compress(b"0" * 10_000_000)
    result = sending.post(receiver.on("/", reply(200, packed, [("Content-Encoding", "gzip")])))
    assert result.body == packed
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"
    chunk = f"{len(packed):x}\r\n".encode() + packed + b"\r\n0\r\n\r\n"
    result = sending.post(receiver.on("/te", raw(head + chunk)))
    assert len(result.body) <= MAX_RESPONSE_BYTES


def test_endless_headers_are_refused(sending: Sending, receiver: Receiver) -> None:
    url = receiver.on("/", drip(b"HTTP/1.1 200 OK\r\n", b"X-Long: " + b"y" * 8000 + b"\r\n", interval_seconds=0))
    assert sending.post(url).error is TransportError.PROTOCOL


# -- no answer -----------------------------------------------------------------------------------------------------


def test_silence_ends_at_the_deadline(sending: Sending, receiver: Receiver) -> None:
    result = sending.post(receiver.on("/", held(Gate())), timeout_seconds=0.15)
    assert result.error is TransportError.TIMEOUT
    assert 0.15 <= result.duration_seconds < 5
    assert "timed out" in result.message


def test_each_callback_has_its_own_deadline(sending: Sending, receiver: Receiver) -> None:
    """Also on a handle that had another one before."""
    url = receiver.on("/", reply(), held(Gate()))
    assert sending.post(url, timeout_seconds=900).status == 200
    assert sending.post(url, timeout_seconds=0.1).error is TransportError.TIMEOUT


@pytest.mark.parametrize(
    "beginning", [b"", b"HTTP/1.1 200 OK\r\n", CHUNKED], ids=["before the answer", "in the headers", "in the body"]
)
def test_a_drip_does_not_extend_the_deadline(sending: Sending, receiver: Receiver, beginning: bytes) -> None:
    drop = {b"": b"", CHUNKED: b"1\r\nx\r\n"}.get(beginning, b"X: y\r\n")
    result = sending.post(receiver.on("/", drip(beginning, drop)), timeout_seconds=0.2)
    assert result.error is TransportError.TIMEOUT
    assert result.status is None


@pytest.mark.parametrize(
    "answer",
    [
        hang_up,
        reset,
        raw(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort", close=True),
        raw(CHUNKED + b"zz\r\nnot a chunk\r\n", close=True),
        raw(b"\x00\xff\xfe garbage \r\n\r\n", close=True),
        raw(b"SSH-2.0-OpenSSH_9.9\r\n", close=True),
        raw(b"HTTP/1.1 abc\r\n\r\n", close=True),
        raw(b"HTTP/1.1 200 OK\r\nContent-Length: -4\r\n\r\n", close=True),
        raw(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcd", close=True),
    ],
    ids=["hang up", "reset", "short", "bad chunk", "garbage", "ssh", "no status", "negative length", "two lengths"],
)
def test_what_is_no_complete_http_answer_is_a_protocol_error(
    sending: Sending, receiver: Receiver, answer: object
) -> None:
    result = sending.post(receiver.on("/", answer))  # type: ignore[arg-type]
    assert (result.error, result.status) == (TransportError.PROTOCOL, None)
    assert result.message
    assert sending.post(receiver.url("/next")).status == 200


def test_nobody_listening_is_a_connect_error(sending: Sending) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        result = sending.post(f"http://127.0.0.1:{port}/?token=secret")
    assert result.error is TransportError.CONNECT
    assert "secret" not in result.message


def test_an_unknown_host_is_a_resolve_error(sending: Sending) -> None:
    result = sending.post("http://no-such-host.invalid/?token=secret", timeout_seconds=10)
    assert result.error is TransportError.RESOLVE
    assert "secret" not in result.message


@pytest.mark.parametrize(
    "url",
    [
        "",
        "hook",
        "localhost:80/hook",
        "//localhost/hook",
        "ftp://localhost/",
        "file:///etc/passwd",
        "gopher://localhost/",
        "httpx://localhost/",
        "http://",
        "http://[::1/",
        "http://localhost:99999/",
        "http://localhost:port/",
        "http://local host/",
        "http://localhost/a b",
        "http://localhost/\r\nX: y",
        "http://localhost/\x00",
        "http://localhost/\ud800",
    ],
)
def test_a_url_that_cannot_be_called_is_refused_and_harms_nobody_else(
    sending: Sending, receiver: Receiver, url: str
) -> None:
    callbacks = [sending.callback(receiver.url()), sending.callback(url), sending.callback(receiver.url())]
    sending.sender.submit(callbacks)
    results = {result.key: result for result in sending.wait_for(3)}
    refused = results[callbacks[1].key]
    assert (refused.error, refused.status) == (TransportError.REFUSED_URL, None)
    assert refused.message
    assert results[callbacks[0].key].status == results[callbacks[2].key].status == 200


def test_a_refusal_is_reported_at_once(sending: Sending) -> None:
    """Nothing else is in flight that would wake the sender."""
    assert sending.post("ftp://localhost/").error is TransportError.REFUSED_URL


def test_the_environment_and_home_have_no_say(
    sending: Sending, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    (tmp_path / ".netrc").write_text("machine localhost login me password mine\n")  # type: ignore[operator]
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9/")
    assert sending.post(receiver.url()).status == 200
    assert receiver.requests[0].header("authorization") is None


def test_cookies_are_not_kept(sending: Sending, receiver: Receiver) -> None:
    url = receiver.on("/", reply(200, json.dumps({}).encode(), [("Set-Cookie", "a=b; Path=/")]))
    sending.post(url)
    sending.post(url)
    assert [request.header("cookie") for request in receiver.requests] == [None, None]


def test_the_head_of_the_final_answer_is_reported(sending: Sending, receiver: Receiver) -> None:
    informational = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
    final = b"HTTP/1.1 200 OK\r\nX-One: 1\r\nTransfer-Encoding: chunked\r\nTrailer: X-Late\r\n\r\n"
    url = receiver.on("/", raw(informational + final + b"2\r\nok\r\n0\r\nX-Late: 1\r\n\r\n"), reply(204))
    first = sending.post(url)
    assert first.head == (
        b"HTTP/1.1 200 OK\r\n",
        b"X-One: 1\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Trailer: X-Late\r\n",
    )
    assert first.body == b"ok"
    assert sending.post(url).head == (b"HTTP/1.1 204 Status\r\n", b"Content-Length: 0\r\n")


def test_a_large_head_is_kept_in_part(sending: Sending, receiver: Receiver) -> None:
    lines = [b"HTTP/1.1 200 OK\r\n", *(b"X-%d: %s\r\n" % (number, b"x" * 100) for number in range(500))]
    result = sending.post(receiver.on("/", raw(b"".join(lines) + b"Content-Length: 2\r\n\r\nok")))
    assert (result.status, result.body) == (200, b"ok")
    assert result.head[:40] == tuple(lines[:40])
    assert MAX_HEAD_BYTES / 4 < sum(map(len, result.head)) <= MAX_HEAD_BYTES
