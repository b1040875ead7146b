from __future__ import annotations

import base64
import gzip
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duetime.calls.message_log import (
    LogRules,
    cut_text,
    logged_request,
    logged_response,
)
from duetime.delivery.port import CallbackResult
from duetime.domain.executions import LoggedMessage
from duetime.domain.name_patterns import parse_name_patterns
from duetime.domain.redaction import redact_members, redact_parameters, shown_url

RULES = LogRules()
JSON = ("Content-Type", "application/json")
FIELDS = RULES.fields


def response(
    body: bytes = b"", *, head: tuple[bytes, ...] = (), is_cut: bool = False, rules: LogRules = RULES
) -> LoggedMessage:
    return logged_response(CallbackResult(1, 200, body, None, None, "", 0.1, is_cut, head), rules)


# -- headers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "Authorization",
        "PROXY-AUTHORIZATION",
        "cookie",
        "Set-Cookie",
        "x-api-key",
        "Api-Key",
        "X-Auth-Token",
        "X-Auth-Key",
        "X-Amz-Security-Token",
        "my-secret",
        "X-Hub-Signature-256",
        "webhook-signature",
        "X-CSRF",
        "db_password",
        "X-Original-Authorization",
        "X-Session-Cookie",
        "X-Auth",
        "X-Basic-Auth",
        "X-RapidAPI-Key",
        "x-goog-api-key",
        "Ocp-Apim-Subscription-Key",
        "x-functions-key",
        "X-Master-Key",
        "X-Key",
        "X-Own-Key",
        "X-Keystone",
        "X-Idempotency-Key-Secret",
        "X-Authenticated-User",
        "Proxy-Authenticate",
        "Proxy-Status",
        "X-Passw",
    ],
)
def test_headers_with_secrets_are_shown_without_their_value(name: str) -> None:
    assert logged_request([(name, "abc"), ("X-Own", "d")], None, RULES).headers == (
        (name, "[redacted]"),
        ("X-Own", "d"),
    )


@pytest.mark.parametrize(
    "name",
    [
        "Content-Type",
        "ETag",
        "idempotency-key",
        "Idempotency_Key",
        "x-request-id",
        "Author",
        "Keep-Alive",
        "WWW-Authenticate",
        "X-Monitor",
    ],
)
def test_other_headers_are_shown(name: str) -> None:
    assert logged_request([(name, "abc")], None, RULES).headers == ((name, "abc"),)


def test_a_url_in_a_header_is_shown_as_urls_are() -> None:
    head = (
        b"Location: /next?token=abc&page=2\r\n",
        b"X-Link: https://a.test/?api_key=abc\r\n",
        b"X-Other: a?token=b\r\n",
    )
    assert response(head=head).headers == (
        ("Location", "/next?token=[redacted]&page=2"),
        ("X-Link", "https://a.test/?api_key=[redacted]"),
        ("X-Other", "a?token=b"),
    )


@pytest.mark.parametrize(
    ("header", "shown"),
    [
        ("Location: https://bob:p@w@a.test/x?a=1", "https://a.test/x?a=1"),
        ("Location: //bob:pw@a.test/x", "//a.test/x"),
        (
            "Link: <https://a.test/?n=2&token=abc>; rel=next, <https://a.test/?token=abc&n=9>; rel=last",
            "<https://a.test/?n=2&token=[redacted]>; rel=next, <https://a.test/?token=[redacted]&n=9>; rel=last",
        ),
        ("Link: </x?sig=abc#frag>; rel=next", "</x?sig=[redacted]>; rel=next"),
        ("Refresh: 5; url=/next?token=abc", "5; url=/next?token=[redacted]"),
    ],
)
def test_every_url_in_a_header_is_shown_without_secrets(header: str, shown: str) -> None:
    ((_, value),) = response(head=(f"{header}\r\n".encode(),)).headers
    assert value == shown


def test_the_headers_of_a_response_are_all_kept_in_order() -> None:
    head = (
        b"HTTP/1.1 200 OK\r\n",
        b"Via: a\r\n",
        b"via:b \r\n",
        "X-Name: żółw\r\n".encode(),
        b"X-Latin: caf\xe9\r\n",
        b"X-Bell: \x07\r\n",
        b"\r\n",
    )
    assert response(head=head).headers == (
        ("Via", "a"),
        ("via", "b"),
        ("X-Name", "żółw"),
        ("X-Latin", "café"),
        ("X-Bell", "?"),
    )


def test_an_operators_own_list_replaces_ours() -> None:
    rules = LogRules(headers=parse_name_patterns("x-own"))
    headers = [("X-Own", "a"), ("Authorization", "b")]
    assert logged_request(headers, None, rules).headers == (("X-Own", "[redacted]"), ("Authorization", "b"))


# -- URLs and forms ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://a.test/x", "https://a.test/x"),
        ("https://a.test/x?a=1&Token=abc&b=2#frag", "https://a.test/x?a=1&Token=[redacted]&b=2"),
        ("https://a.test/x?%74oken=abc", "https://a.test/x?%74oken=[redacted]"),
        ("https://a.test/x?sig=abc;password=x", "https://a.test/x?sig=[redacted];password=[redacted]"),
        ("https://a.test/x?a=token&token", "https://a.test/x?a=token&token"),
        (
            "https://a.test/?X-Amz-Signature=00&X-Amz-Date=1",
            "https://a.test/?X-Amz-Signature=[redacted]&X-Amz-Date=1",
        ),
        ("https://a.test/x?", "https://a.test/x?"),
    ],
)
def test_urls_are_shown_without_secrets(url: str, shown: str) -> None:
    assert shown_url(url, RULES) == shown


def test_forms_are_looked_into() -> None:
    headers = [("content-type", "application/x-www-form-urlencoded; charset=utf-8")]
    logged = logged_request(headers, b"user=u&password=a%26b&x=1", RULES)
    assert logged.body == "user=u&password=[redacted]&x=1"


# -- JSON ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('{"a": 1.10, "password" : "x\\"y", "b":[1e5]}', '{"a": 1.10, "password" : "[redacted]", "b":[1e5]}'),
        ('{"secret":{"a":[1,{"b":"}"}]},"c":1}', '{"secret":"[redacted]","c":1}'),
        ('{"tokens":[1,"]",[2]], "c":1}', '{"tokens":"[redacted]", "c":1}'),
        ('{"a":{"b":[{"accessToken":null}]}}', '{"a":{"b":[{"accessToken":"[redacted]"}]}}'),
        ('[{"client_secret":12345},{"pwd":true}]', '[{"client_secret":"[redacted]"},{"pwd":"[redacted]"}]'),
        ('{"pass\\u0077ord":"x"}', '{"pass\\u0077ord":"[redacted]"}'),
        ('{"a":"password","b":"\\"password\\": \\"x\\""}', '{"a":"password","b":"\\"password\\": \\"x\\""}'),
        # Cut off, or no JSON at all.
        ('{"a":1,"password":"abc', '{"a":1,"password":"[redacted]"'),
        ('{"a":1,"secret":{"x":"abc', '{"a":1,"secret":"[redacted]"'),
        ('{"a":1,"token":12', '{"a":1,"token":"[redacted]"'),
        ('{"a":1,"token":', '{"a":1,"token":"[redacted]"'),
        ('{"a":1,"tok', '{"a":1,"tok'),
        ('{"password": , "x": 1}', '{"password": "[redacted]", "x": 1}'),
    ],
)
def test_members_with_secrets_are_replaced_and_nothing_else_is_touched(text: str, shown: str) -> None:
    assert redact_members(text, FIELDS) == shown


@pytest.mark.parametrize("headers", [[JSON], [("content-type", "application/problem+json")], []])
def test_json_is_recognised_by_its_type_or_its_beginning(headers: list[tuple[str, str]]) -> None:
    assert logged_request(headers, b' {"password":"x"}', RULES).body == ' {"password":"[redacted]"}'


def test_text_is_left_alone() -> None:
    assert logged_request([("Content-Type", "text/plain")], b'"password":"x"', RULES).body == '"password":"x"'


_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.sampled_from(["a", "password", 'b"}', "tok\\en", "token"]), inner)
    ),
    max_leaves=20,
)


@given(_values, st.booleans())
def test_redacted_json_is_the_same_json_without_the_secrets(value: object, is_compact: bool) -> None:
    def expected(value: object) -> object:
        if isinstance(value, dict):
            secret = {"password", "token"}
            return {name: "[redacted]" if name in secret else expected(item) for name, item in value.items()}
        return [expected(item) for item in value] if isinstance(value, list) else value

    text = json.dumps(value, separators=(",", ":") if is_compact else None, ensure_ascii=is_compact)
    assert json.loads(redact_members(text, FIELDS)) == expected(value)


@given(st.text(alphabet='{}[]",:\\ paswordtken1'))
def test_nothing_breaks_on_what_is_no_json(text: str) -> None:
    redact_members(text, FIELDS)
    redact_parameters(text, FIELDS)


def test_a_body_that_was_cut_off_within_an_escape_shows_no_secret() -> None:
    assert redact_members('{"a": "\\"", "password": "x\\', FIELDS) == '{"a": "\\"", "password": "[redacted]"'


def test_a_hostile_body_costs_little() -> None:
    began = time.process_time()
    for body in (b'"' * 65_536, b'{"a":' * 13_000, b'"\\' * 32_768, b'{"secret":' + b"[" * 65_000, b"\\" * 65_536):
        response(body, head=(b"Content-Type: application/json\r\n",))
    assert (
        time.process_time() - began < 5
    )  # some hundredths; were each quote to look through all the rest, many seconds


# -- limits --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "limit", "kept"),
    [
        ("abc", 3, "abc"),
        ("abcd", 3, "abc"),
        ("ż", 1, ""),
        ("aż", 2, "a"),
        ("aż", 3, "aż"),
        ("🐢x", 3, ""),
        ("a", 0, ""),
    ],
)
def test_a_body_is_cut_between_characters(text: str, limit: int, kept: str) -> None:
    assert cut_text(text, limit) == kept
    logged = logged_request([], text.encode(), LogRules(max_body_bytes=limit))
    assert (logged.body, logged.body_bytes, logged.is_truncated) == (kept, len(text.encode()), kept != text)


def test_a_whole_body_says_so() -> None:
    assert response(b"abc") == LoggedMessage(body="abc", body_bytes=3)


def test_an_answer_that_was_not_read_to_its_end_says_so() -> None:
    logged = response(b"abc", is_cut=True)
    assert (logged.body, logged.body_bytes, logged.is_truncated) == ("abc", 3, True)


def test_an_answer_that_was_cut_off_within_a_character_is_still_text() -> None:
    logged = response("aż".encode()[:-1], is_cut=True)
    assert (logged.body, logged.body_is_base64) == ("a", False)
    assert response("aż".encode()[:-1]).body_is_base64


def test_what_is_no_text_is_kept_as_base64_within_the_limit() -> None:
    body = bytes(range(256))
    logged = response(body)
    assert logged.body_is_base64
    assert base64.b64decode(logged.body or "") == body
    cut = response(body, rules=LogRules(max_body_bytes=100))
    assert len(cut.body or "") <= 100
    assert body.startswith(base64.b64decode(cut.body or ""))
    assert (cut.body_bytes, cut.is_truncated) == (256, True)


def test_fields_are_found_in_other_encodings_too() -> None:
    body = '{"token": "s3cret", "name": "café"}'.encode("latin-1")
    logged = response(body, head=(b"Content-Type: application/json; charset=latin-1\r\n",))
    assert base64.b64decode(logged.body or "") == body.replace(b"s3cret", b"[redacted]")
    assert (logged.body_is_base64, logged.body_bytes, logged.is_truncated) == (True, len(body), False)
    form = response(b"name=caf\xe9&token=s3cret", head=(b"Content-Type: application/x-www-form-urlencoded\r\n",))
    assert base64.b64decode(form.body or "") == b"name=caf\xe9&token=[redacted]"


@pytest.mark.parametrize(
    ("body", "header"),
    [
        (gzip.compress(b'{"token": "s3cret"}', mtime=0), b"Content-Encoding: gzip\r\n"),
        ('{"token": "s3cret"}'.encode("utf-16"), b"Content-Type: application/json; charset=utf-16\r\n"),
    ],
    ids=["gzip", "utf-16"],
)
def test_a_body_that_cannot_be_looked_into_is_not_kept(body: bytes, header: bytes) -> None:
    logged = response(body, head=(header,))
    assert (logged.body, logged.body_bytes, logged.is_truncated) == (None, len(body), True)
    nothing_hidden = response(body, head=(header,), rules=LogRules(fields=parse_name_patterns("none")))
    assert base64.b64decode(nothing_hidden.body or "") == body


def test_bodies_need_not_be_kept() -> None:
    rules = LogRules(keeps_bodies=False)
    logged = logged_request([JSON], b'{"a":1}', rules)
    assert (logged.body, logged.body_bytes, logged.is_truncated) == (None, 7, True)
    assert logged_request([], None, rules) == LoggedMessage()


@pytest.mark.parametrize("body", [None, b""])
def test_no_body_is_none(body: bytes | None) -> None:
    assert logged_request([], body, RULES) == LoggedMessage()
