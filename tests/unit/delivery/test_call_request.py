from __future__ import annotations

import json
from typing import Any

import pytest

from duetime import __version__
from duetime.delivery.call_request import CallRequest, call_request
from duetime.delivery.headers import is_reserved_in_calls
from duetime.domain.service_calls import Method
from duetime.testing.contract import call_builders as make


def request(**fields: Any) -> CallRequest:
    call = make.submitted(call_id="call-1", **({"headers_json": None} | fields)).after
    return call_request(call, execution_id="execution-1", attempt=2)


def headers(**fields: Any) -> dict[str, str]:
    pairs = request(**fields).headers
    assert len({name.lower() for name, _ in pairs}) == len(pairs)
    return dict(pairs)


def test_a_request_in_whole() -> None:
    sent = request(method=Method.PUT, url="https://shop.test/x?a=b", body_json='{"a": 1.10}', timeout_seconds=7)
    assert sent == CallRequest(
        method=Method.PUT,
        url="https://shop.test/x?a=b",
        headers=(
            ("User-Agent", f"Duetime/{__version__}"),
            ("Accept", "*/*"),
            ("Content-Type", "application/json"),
            ("x-correlation-id", "corr-1"),
            ("x-duetime-service-call-id", "call-1"),
            ("x-duetime-execution-id", "execution-1"),
            ("x-duetime-attempt", "2"),
        ),
        body=b'{"a": 1.10}',
        timeout_seconds=7,
    )


def test_a_string_is_sent_as_its_text() -> None:
    sent = request(body_json='"za\\u017c\\n\\"x\\""')
    assert sent.body == 'zaż\n"x"'.encode()
    assert dict(sent.headers)["Content-Type"] == "text/plain; charset=utf-8"


@pytest.mark.parametrize(
    ("body_json", "sent"),
    [
        ("null", b"null"),
        ("0.10", b"0.10"),
        ("[1, 2]", b"[1, 2]"),
        ('""', b""),
        ('{"a":"\ud800"}', b'{"a":"\\ud800"}'),
    ],
)
def test_every_other_value_is_sent_as_its_json_text(body_json: str, sent: bytes) -> None:
    assert request(body_json=body_json).body == sent


@pytest.mark.parametrize(
    ("method", "body"),
    [
        (Method.GET, None),
        (Method.DELETE, None),
        (Method.POST, b""),
        (Method.PUT, b""),
        (Method.PATCH, b""),
    ],
)
def test_without_a_body(method: Method, body: bytes | None) -> None:
    sent = request(method=method, body_json=None)
    assert sent.body == body
    assert "content-type" not in {name.lower() for name, _ in sent.headers}
    # libcurl would call it a form.
    assert ("Content-Type:" in sent.callback(1).headers) == (body == b"")


@pytest.mark.parametrize("method", [Method.GET, Method.DELETE])
def test_any_method_may_have_a_body(method: Method) -> None:
    assert request(method=method, body_json="{}").body == b"{}"


def test_the_tenants_own_headers_win_over_defaults() -> None:
    own = {
        "user-agent": "mine",
        "Accept": "text/html",
        "CONTENT-TYPE": "application/xml",
        "Authorization": "Bearer x",
    }
    sent = headers(headers_json=json.dumps(own), body_json='"<x/>"')
    assert {name: sent[name] for name in own} == own
    assert "User-Agent" not in sent


@pytest.mark.parametrize(
    "name",
    [
        *(
            "Host",
            "content-length",
            "Transfer-Encoding",
            "connection",
            "X-Correlation-Id",
            "x-duetime-attempt",
            "a b",
        ),
        *("a b", "", "Content_Length", "transfer_encoding", "X_Correlation_Id", "x_duetime_attempt"),
    ],
)
def test_what_frames_the_message_or_speaks_for_duetime_is_never_sent(name: str) -> None:
    sent = request(headers_json=json.dumps({name: "own", "ok": "own", "split": "own\r\nb: c"}))
    assert [pair for pair in sent.headers if pair[1].startswith("own")] == [("ok", "own")]


def test_reserved_names_are_reserved_in_any_spelling() -> None:
    assert is_reserved_in_calls("X-Duetime-Anything")
    assert is_reserved_in_calls("X_Duetime-Anything")
    assert not is_reserved_in_calls("webhook_id")
    assert not is_reserved_in_calls("X-Duetimes")


def test_a_correlation_id_that_is_no_ascii_is_percent_encoded() -> None:
    assert headers(correlation_id="zamówienie 7")["x-correlation-id"] == "zam%C3%B3wienie%207"


@pytest.mark.parametrize("method", Method)
def test_every_method_goes_over_a_connection_of_its_own(method: Method) -> None:
    callback = request(method=method).callback(9)
    assert (callback.key, callback.method, callback.has_own_connection) == (9, method, True)


def test_an_empty_header_is_sent_empty() -> None:
    assert "X-Empty;" in request(headers_json='{"X-Empty": " "}').callback(1).headers
