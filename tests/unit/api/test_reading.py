"""Bodies and query strings: what is taken, and what is said of the rest."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duetime.api.http.batches import MAX_BATCH_ITEMS
from duetime.api.http.errors import InvalidFields
from duetime.api.http.parsing import MAX_BODY_BYTES, read_body, read_items, read_query, validate
from duetime.api.http.raw_json import read_object
from duetime.api.http.request import Request
from duetime.api.http.request_models import PLAIN_SHAPE
from duetime.api.namespaces.requests import NamespaceBody
from duetime.api.timers.requests import TIMER_SHAPE, TIMERS_SHAPE, TimerBody, TimerPatch, TimerQuery
from duetime.domain.errors import InvalidInput, PayloadTooLarge
from duetime.domain.timers import FailureReason, TimerState
from duetime.domain.times import parse_instant

DUE = "2026-12-20T15:30:00Z"
GOOD: dict[str, Any] = {"executeAt": DUE, "callbackUrl": "https://receiver.test/callback"}


def request(body: str = "", *, query: str = "", content_type: str | None = "application/json") -> Request:
    headers = {} if content_type is None else {"content-type": content_type}
    return Request("POST", "/", query, headers, "r1", body, False)


def timer_body(**members: Any) -> TimerBody:
    return validate(TimerBody, read_object(json.dumps(GOOD | members), TIMER_SHAPE))


def faults(**members: Any) -> dict[str, str]:
    with pytest.raises(InvalidFields) as caught:
        timer_body(**members)
    return {error.field: error.message for error in caught.value.errors}


def test_a_timer_may_have_every_field() -> None:
    body = timer_body(
        id="t1",
        delay="1h30m",
        payload=[1],
        headers={"X-Key": "v"},
        retryPolicy={"maxAttempts": 3, "initialInterval": "PT5S"},
        timeoutSeconds=900,
        correlationId="c",
        tags=["a", "b"],
    )
    assert body.execute_at == parse_instant(DUE)
    assert body.delay == 5400
    assert body.payload_json == "[1]"
    assert body.headers_json == '{"X-Key": "v"}'
    assert body.tags == ("a", "b")


def test_null_is_the_same_as_nothing() -> None:
    names = ["id", "delay", "payload", "headers", "retryPolicy", "timeoutSeconds", "correlationId", "tags"]
    nulls = dict.fromkeys(names)
    assert timer_body(**nulls).model_dump() == timer_body().model_dump()


def test_a_name_twice_is_refused_at_any_depth() -> None:
    for text in ('"headers":{"X-A":"1","X-A":"2"}', '"retryPolicy":{"maxAttempts":1,"maxAttempts":2}'):
        with pytest.raises(InvalidFields, match="twice"):
            validate(TimerBody, read_object(f"{json.dumps(GOOD)[:-1]},{text}}}", TIMER_SHAPE))


def test_all_faults_are_named_at_once() -> None:
    assert faults(executeAt="tomorrow", callbackUrl="ftp://x", colour="red", tags="a").keys() == {
        "executeAt",
        "callbackUrl",
        "colour",
        "tags",
    }


@pytest.mark.parametrize(
    ("members", "field"),
    [
        ({"id": 5}, "id"),
        ({"executeAt": 5}, "executeAt"),
        ({"executeAt": "2026-12-20T15:30:00"}, "executeAt"),
        ({"executeAt": "2026-12-20T15:30:60Z"}, "executeAt"),
        ({"executeAt": "10000-01-01T00:00:00Z"}, "executeAt"),
        ({"delay": "soon"}, "delay"),
        ({"delay": -1}, "delay"),
        ({"delay": True}, "delay"),
        ({"timeoutSeconds": 0}, "timeoutSeconds"),
        ({"timeoutSeconds": 901}, "timeoutSeconds"),
        ({"timeoutSeconds": "30"}, "timeoutSeconds"),
        ({"timeoutSeconds": True}, "timeoutSeconds"),
        ({"correlationId": ""}, "correlationId"),
        ({"correlationId": "x" * 256}, "correlationId"),
        ({"correlationId": "a\r\nb: c"}, "correlationId"),
        ({"tags": [""]}, "tags[0]"),
        ({"tags": ["a", "x" * 129]}, "tags[1]"),
        ({"tags": ["a", 1]}, "tags[1]"),
        ({"tags": ["a", "a"]}, "tags"),
        ({"tags": [str(n) for n in range(21)]}, "tags"),
        ({"retryPolicy": []}, "retryPolicy"),
        ({"retryPolicy": {"maxAttempts": 0}}, "retryPolicy.maxAttempts"),
        ({"retryPolicy": {"maxAttempts": 1.5}}, "retryPolicy.maxAttempts"),
        ({"retryPolicy": {"initialInterval": "x"}}, "retryPolicy.initialInterval"),
        ({"retryPolicy": {"colour": 1}}, "retryPolicy.colour"),
        ({"retryPolicy": {"maxAttempts": 1, " " * 3000: 1}}, "retryPolicy"),
        ({"headers": ["a"]}, "headers"),
        ({"headers": {"a b": "x"}}, "headers.a b"),
        ({"headers": {"": "x"}}, "headers."),
        ({"headers": {"X-A": 1}}, "headers.X-A"),
        ({"headers": {"X-A": "a\r\nEvil: 1"}}, "headers.X-A"),
        ({"headers": {"X-A": "\0"}}, "headers.X-A"),
        ({"headers": {"X-A": "☃"}}, "headers.X-A"),
        ({"headers": {"X-A": "1", "x-a": "2"}}, "headers.x-a"),
        ({"headers": {f"X-{n}": "" for n in range(33)}}, "headers"),
        ({"headers": {"X-A": "x" * 8192}}, "headers"),
        ({"headers": {"Host": "x"}}, "headers.Host"),
        ({"headers": {"content-length": "1"}}, "headers.content-length"),
        ({"headers": {"Content-Type": "text/plain"}}, "headers.Content-Type"),
        ({"headers": {"Webhook-Id": "x"}}, "headers.Webhook-Id"),
        ({"headers": {"webhook-anything": "x"}}, "headers.webhook-anything"),
        *(
            ({"headers": {name: "x"}}, f"headers.{name}")
            for name in (
                *("Connection", "Keep-Alive", "Proxy-Authorization", "Proxy-Connection", "TE", "Trailer"),
                *("Transfer-Encoding", "Upgrade", "webhook-signature", "hOsT"),
            )
        ),
        ({"headers": {"X-A": "a\nEvil: 1"}}, "headers.X-A"),
        ({"headers": {"X-A": "a\r"}}, "headers.X-A"),
        ({"headers": {"X-A\r\nEvil": "1"}}, "headers.X-A\r\nEvil"),
    ],
)
def test_a_faulty_field_is_named(members: dict[str, Any], field: str) -> None:
    assert field in faults(**members)


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost",
        "http://127.0.0.1:8080/a?b=c&d=%20",
        "HTTPS://Receiver.Test:443/",
        "http://[::1]:9/x",
        "http://receiver.test?x",
        "http://under_score.test/a|b{c}",
        "http://receiver.test/" + "a" * 2027,
    ],
)
def test_urls_that_are_taken(url: str) -> None:
    assert timer_body(callbackUrl=url).callback_url == url


@pytest.mark.parametrize(
    "url",
    [
        "",
        "receiver.test",
        "//receiver.test/",
        "ftp://receiver.test/",
        "javascript:alert(1)",
        "http://",
        "http:///path",
        "http://user@receiver.test/",
        "http://user:secret@receiver.test/",
        "http://receiver.test/#part",
        "http://receiver.test/a b",
        "http://receiver.test/a\tb",
        "http://receiver.test/\r\nX: 1",
        " http://receiver.test/",
        "http://receiver.test\\@evil.test/",
        "http://receiver.test/\\x",
        "http://receiver.test:0/",
        "http://receiver.test:65536/",
        "http://receiver.test:x/",
        "http://[::1/",
        "http://[fe80::1%25eth0]/",
        "http://straße.test/",
        "http://receiver.test./",
        "http://receiver..test/",
        "http://2130706433/",
        "http://0177.0.0.1/",
        "http://0x7f.1/x",
        "http://127.1",
        "http://127.0.0.1./",
        "http://a@b@127.0.0.1/",
        "http://%31%32%37.0.0.1/",
        "http://１２７.0.0.1/",
        "http://①②⑦.0.0.1/",
        "http://127。0。0。1/",
        "http://[::ffff:127.0.0.1/",
        "http://[1.2.3.4]/",
        "http://receiver.test/☃",
        "http://receiver.test/" + "a" * 2028,
    ],
)
def test_urls_that_are_refused(url: str) -> None:
    assert faults(callbackUrl=url).keys() == {"callbackUrl"}


def test_a_url_with_user_information_is_not_repeated() -> None:
    assert "secret" not in str(faults(callbackUrl="http://user:secret@receiver.test/"))


def test_a_patch_has_no_id_and_cannot_clear_what_a_timer_needs() -> None:
    text = '{"id":"a","executeAt":null,"callbackUrl":null,"delay":null}'
    with pytest.raises(InvalidFields) as caught:
        validate(TimerPatch, read_object(text, TIMER_SHAPE))
    assert {error.field for error in caught.value.errors} == {"id", "executeAt", "callbackUrl", "delay"}


@pytest.mark.parametrize("text", ['{"numShards":0}', '{"numShards":4097}', '{"numShards":"4"}', '{"dedicated":1}'])
def test_a_namespace_has_a_sane_number_of_shards(text: str) -> None:
    with pytest.raises(InvalidFields):
        validate(NamespaceBody, read_object(text, PLAIN_SHAPE))


class TestBody:
    def test_it_is_required(self) -> None:
        with pytest.raises(InvalidInput, match="required"):
            read_body(request(), TIMER_SHAPE)

    def test_it_has_a_limit_in_bytes(self) -> None:
        fits = '{"a":"é"}'.rjust(MAX_BODY_BYTES - 1)
        assert read_body(request(fits), PLAIN_SHAPE).members == {"a": "é"}
        with pytest.raises(PayloadTooLarge):
            read_body(request(" " + fits), PLAIN_SHAPE)

    @pytest.mark.parametrize("text", ['{"a":}', "[]", '"x"', '{"a":NaN}'])
    def test_it_must_be_a_json_object(self, text: str) -> None:
        with pytest.raises(InvalidInput, match="cannot be read as a JSON object"):
            read_body(request(text), TIMER_SHAPE)

    def test_a_batch_is_one_array(self) -> None:
        too_many = json.dumps({"timers": [1] * (MAX_BATCH_ITEMS + 1)})
        for text in ('{"timers":{}}', "{}", '{"timers":[],"x":1}', too_many, '{"timers":[],"timers":[]}'):
            with pytest.raises(InvalidFields):
                read_items(request(text), TIMERS_SHAPE)
        assert read_items(request('{"timers":[1,2]}'), TIMERS_SHAPE) == [1, 2]


class TestQuery:
    def test_every_filter(self) -> None:
        query = f"state=failed&tag=a%20b&dueFrom={DUE}&dueTo={DUE}&correlationId=c&reason=Timeout&cursor=x&limit=7"
        query += f"&failedFrom={DUE}&failedTo={DUE}"
        assert read_query(TimerQuery, request(query=query)).model_dump() == {
            "state": TimerState.FAILED,
            "tag": "a b",
            "due_from": parse_instant(DUE),
            "due_to": parse_instant(DUE),
            "correlation_id": "c",
            "reason": FailureReason.TIMEOUT,
            "failed_from": parse_instant(DUE),
            "failed_to": parse_instant(DUE),
            "cursor": "x",
            "limit": 7,
        }

    def test_the_plus_of_an_offset_may_be_unencoded(self) -> None:
        query = read_query(TimerQuery, request(query="dueFrom=2026-12-20T16:30:00+01:00"))
        assert query.due_from == parse_instant(DUE)

    @pytest.mark.parametrize(
        ("query", "field"),
        [
            ("state=gone", "state"),
            ("state=", "state"),
            ("stat=failed", "stat"),
            ("state=failed&state=fired", "state"),
            ("tag=", "tag"),
            ("dueFrom=today", "dueFrom"),
            ("limit=0", "limit"),
            ("limit=501", "limit"),
            ("limit=x", "limit"),
            ("limit=1e2", "limit"),
            ("cursor=", "cursor"),
            ("cursor=" + "x" * 8193, "cursor"),
            ("correlationId=" + "x" * 256, "correlationId"),
        ],
    )
    def test_a_faulty_parameter_is_named(self, query: str, field: str) -> None:
        with pytest.raises(InvalidFields) as caught:
            read_query(TimerQuery, request(query=query))
        assert [error.field for error in caught.value.errors] == [field]

    def test_the_number_of_parameters_is_bounded(self) -> None:
        with pytest.raises(InvalidInput):
            read_query(TimerQuery, request(query="&".join(f"x{n}=1" for n in range(51))))


@given(
    st.dictionaries(
        st.text(max_size=8),
        st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    )
)
def test_nonsense_is_refused_and_never_breaks(members: dict[str, Any]) -> None:
    with pytest.raises(InvalidFields):
        validate(TimerBody, read_object(json.dumps(members), TIMER_SHAPE))
