from __future__ import annotations

import base64
from typing import Any

import pytest

from duetime.api.http.errors import UnsupportedMediaType
from duetime.api.http.request import Request, read_request
from duetime.domain.errors import InvalidInput, PayloadTooLarge


def request(**changes: Any) -> Request:
    event: dict[str, Any] = {
        "rawPath": "/v1/shards",
        "rawQueryString": "limit=5",
        "headers": {"Content-Type": "application/json"},
        "requestContext": {"http": {"method": "get"}, "stage": "$default", "requestId": "gateway-1"},
        "isBase64Encoded": False,
    }
    context = event["requestContext"] | changes.pop("context", {})
    return read_request(event | {"requestContext": context} | changes, new_id=lambda: "made-1")


def test_an_event_is_read() -> None:
    assert request() == Request(
        "GET", "/v1/shards", "limit=5", {"content-type": "application/json"}, "gateway-1", "", False
    )


@pytest.mark.parametrize(
    ("raw_path", "stage", "path"),
    [
        ("/v1/shards", "$default", "/v1/shards"),
        ("/v1/shards", None, "/v1/shards"),
        ("/prod/v1/shards", "prod", "/v1/shards"),
        ("/prod", "prod", "/"),
        ("/v1/shards", "prod", "/v1/shards"),
        ("/production/x", "prod", "/production/x"),
        ("/a%25b", "$default", "/a%b"),
        ("/a%2541", "$default", "/a%41"),
        ("/100%", "$default", "/100%"),
        ("/a+b c#d?e", "$default", "/a+b c#d?e"),
    ],
)
def test_the_path_is_decoded_and_without_the_stage(raw_path: str, stage: str | None, path: str) -> None:
    assert request(rawPath=raw_path, context={"stage": stage}).path == path


class TestRequestId:
    def test_the_callers_is_taken(self) -> None:
        assert request(headers={"X-Request-ID": "mine-1"}).request_id == "mine-1"

    @pytest.mark.parametrize("asked", ["", "a b", "x" * 129, "a\nb", "é"])
    def test_but_not_a_strange_one(self, asked: str) -> None:
        assert request(headers={"x-request-id": asked}).request_id == "gateway-1"

    def test_one_is_made_when_there_is_none(self) -> None:
        assert request(context={"requestId": None}).request_id == "made-1"


class TestBody:
    def test_none_is_empty(self) -> None:
        assert request(body=None).text(limit_bytes=0) == ""

    def test_base64_is_decoded(self) -> None:
        encoded = base64.b64encode("é☃".encode()).decode()
        assert request(body=encoded, isBase64Encoded=True).text(limit_bytes=5) == "é☃"

    @pytest.mark.parametrize("is_base64", [True, False])
    def test_the_limit_counts_bytes(self, is_base64: bool) -> None:
        text = "é" * 50
        body = base64.b64encode(text.encode()).decode() if is_base64 else text
        assert request(body=body, isBase64Encoded=is_base64).text(limit_bytes=100) == text
        with pytest.raises(PayloadTooLarge):
            request(body=body, isBase64Encoded=is_base64).text(limit_bytes=99)

    @pytest.mark.parametrize("body", ["####", "/w==", "abc"])
    def test_bytes_that_are_not_utf8_are_refused(self, body: str) -> None:
        with pytest.raises(InvalidInput, match="UTF-8"):
            request(body=body, isBase64Encoded=True).text(limit_bytes=100)

    def test_text_without_utf8_is_refused(self) -> None:
        with pytest.raises(InvalidInput, match="UTF-8"):
            request(body='{"a":"\ud800"}').text(limit_bytes=100)

    @pytest.mark.parametrize(
        "content_type",
        [
            "application/json",
            "Application/JSON; charset=UTF-8",
            'application/json;charset="utf-8"',
            "application/merge-patch+json",
            "application/vnd.acme.v1+json",
            "",
        ],
    )
    def test_json_is_taken(self, content_type: str) -> None:
        assert request(body="{}", headers={"content-type": content_type}).json_text(limit_bytes=9) == "{}"

    @pytest.mark.parametrize(
        "content_type",
        ["text/plain", "application/x-www-form-urlencoded", "application/jsonx", "application/json; charset=latin-1"],
    )
    def test_anything_else_is_not(self, content_type: str) -> None:
        with pytest.raises(UnsupportedMediaType):
            request(body="{}", headers={"content-type": content_type}).json_text(limit_bytes=9)

    def test_a_compressed_body_is_not_taken(self) -> None:
        with pytest.raises(UnsupportedMediaType, match="Content-Encoding"):
            request(body="{}", headers={"content-encoding": "gzip"}).json_text(limit_bytes=9)
        assert request(body="{}", headers={"content-encoding": "Identity"}).json_text(limit_bytes=9) == "{}"

    def test_no_body_needs_no_type(self) -> None:
        assert request(headers={"content-type": "text/plain"}).json_text(limit_bytes=9) == ""


def test_a_content_type_of_spaces_is_judged_at_once() -> None:
    """Each length of one run of spaces with each of the next was tried: seconds for as many as a gateway lets in."""
    spaces = " " * 200_000
    for declared in (f"application/json{spaces}x", f"application/json;{spaces}charset{spaces}x"):
        with pytest.raises(UnsupportedMediaType):
            request(headers={"content-type": declared}, body="{}").json_text(limit_bytes=100)
    padded = f"{spaces}application/json{spaces};{spaces}charset{spaces}={spaces}utf-8{spaces};{spaces}"
    assert request(headers={"content-type": padded}, body="{}").json_text(limit_bytes=100) == "{}"
