from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duetime.domain.errors import InvalidInput
from duetime.local.gateway import HttpRequest, from_result, to_event

RECEIVED_AT = datetime(2026, 12, 20, 15, 30, 0, 123000, tzinfo=UTC)


def request(**fields: Any) -> HttpRequest:
    defaults: dict[str, Any] = {
        "method": "GET",
        "raw_path": "/",
        "raw_query": "",
        "headers": (),
        "body": b"",
        "http_version": "1.1",
        "client_host": "127.0.0.1",
        "request_id": "r-1",
        "received_at": RECEIVED_AT,
    }
    return HttpRequest(**(defaults | fields))


def test_the_whole_event() -> None:
    event = to_event(
        request(
            method="POST",
            raw_path="/v1/namespaces/default/timers",
            raw_query="limit=5&tag=a&tag=b%20c",
            headers=(
                ("Host", "127.0.0.1:8080"),
                ("User-Agent", "curl"),
                ("Content-Type", "application/json"),
                ("Accept", "a"),
                ("accept", "b"),
                ("Cookie", "x=1; y=2"),
            ),
            body='{"é": 1}'.encode(),
        )
    )
    assert event == {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": "/v1/namespaces/default/timers",
        "rawQueryString": "limit=5&tag=a&tag=b%20c",
        "cookies": ["x=1", "y=2"],
        "headers": {
            "host": "127.0.0.1:8080",
            "user-agent": "curl",
            "content-type": "application/json",
            "accept": "a,b",
        },
        "queryStringParameters": {"limit": "5", "tag": "a,b c"},
        "requestContext": {
            "accountId": "000000000000",
            "apiId": "local",
            "domainName": "127.0.0.1:8080",
            "domainPrefix": "127",
            "http": {
                "method": "POST",
                "path": "/v1/namespaces/default/timers",
                "protocol": "HTTP/1.1",
                "sourceIp": "127.0.0.1",
                "userAgent": "curl",
            },
            "requestId": "r-1",
            "routeKey": "$default",
            "stage": "$default",
            "time": "20/Dec/2026:15:30:00 +0000",
            "timeEpoch": 1797780600123,
        },
        "body": '{"é": 1}',
        "isBase64Encoded": False,
    }
    json.dumps(event)


def test_what_a_request_lacks_is_left_out() -> None:
    event = to_event(request())
    assert not {"body", "cookies", "queryStringParameters"} & event.keys()
    assert event["isBase64Encoded"] is False


@given(st.text(st.characters(codec="utf-8"), max_size=20))
def test_decoding_the_path_once_more_gives_exactly_what_was_meant(timer_id: str) -> None:
    event = to_event(request(raw_path="/timers/" + quote(timer_id, safe="")))
    assert event["rawPath"] == event["requestContext"]["http"]["path"]
    assert unquote(event["rawPath"]) == "/timers/" + timer_id


@pytest.mark.parametrize(
    ("raw", "decoded"),
    [
        ("/a%20b", "/a b"),
        ("/%F0%9F%98%80", "/\U0001f600"),
        ("/%252F", "/%252F"),
        ("/a%2Fb", "/a/b"),
        ("/a+b", "/a+b"),
    ],
)
def test_the_path_is_decoded_but_for_the_percent_sign(raw: str, decoded: str) -> None:
    assert to_event(request(raw_path=raw))["rawPath"] == decoded


@pytest.mark.parametrize(
    "fields",
    [
        {"raw_path": "/%ff"},
        {"raw_path": "/%ed%a0%80"},
        {"raw_query": "a=%ff"},
        {"raw_query": "&".join(["a=1"] * 1001)},
    ],
)
def test_what_has_no_meaning_is_refused(fields: dict[str, str]) -> None:
    with pytest.raises(InvalidInput):
        to_event(request(**fields))


@pytest.mark.parametrize(
    ("content_type", "body", "is_text"),
    [
        ("application/json", b"{}", True),
        ("application/problem+json; charset=utf-8", b"{}", True),
        ("text/plain", b"x", True),
        ("application/octet-stream", b"x", False),
        ("", b"x", False),
        ("application/json", b"\xff", False),
    ],
)
def test_text_stays_text_and_the_rest_is_base64(content_type: str, body: bytes, is_text: bool) -> None:
    event = to_event(request(headers=(("content-type", content_type),), body=body))
    assert event["isBase64Encoded"] is not is_text
    assert (event["body"].encode() if is_text else base64.b64decode(event["body"])) == body


def test_an_answer() -> None:
    response = from_result(
        {"statusCode": 201, "headers": {"ETag": '"1"', "X-N": 5}, "cookies": ["a=1", "b=2"], "body": "é"}
    )
    assert response.status == 201
    assert response.headers == (("etag", '"1"'), ("x-n", "5"), ("set-cookie", "a=1"), ("set-cookie", "b=2"))
    assert response.body == "é".encode()


def test_an_answer_in_base64_and_one_without_a_body() -> None:
    assert from_result({"statusCode": 200, "body": "/w==", "isBase64Encoded": True}).body == b"\xff"
    assert from_result({"statusCode": 204}).body == b""


def test_an_answer_that_cannot_be_encoded_is_an_error() -> None:
    with pytest.raises(ValueError, match="cannot be encoded"):
        from_result({"statusCode": 200, "body": "\ud800"})
