from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duetime.delivery.port import CallbackResult, TransportError
from duetime.domain.retry import MAX_RETRY_AFTER_SECONDS
from duetime.domain.timers import FailureReason
from duetime.engine.response.classify import Classification, Disposition, classify, retry_after_seconds

NOW = datetime(2026, 12, 20, 15, 30, tzinfo=UTC)
TOMORROW = datetime(2026, 12, 21, 15, 30, tzinfo=UTC)


def answered(
    status: int | None = 200,
    body: bytes | str | object = b"",
    *,
    retry_after: str | None = None,
    error: TransportError | None = None,
    truncated: bool = False,
) -> Classification:
    if not isinstance(body, bytes):
        body = (body if isinstance(body, str) else json.dumps(body)).encode()
    message = "what libcurl said" if error else ""
    result = CallbackResult(1, status, body, retry_after, error, message, 0.1, truncated)
    return classify(result, now=NOW)


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"OK",
        b"<html>",
        b"\xff\xfe\x00",
        b"{",
        b"[false]",
        b"null",
        b"false",
        b'"ok"',
        b"{}",
        b'{"ok":true}',
        b'{"ok":null}',
        b'{"ok":0}',
        b'{"ok":"false"}',
        b'{"OK":false}',
        b'{"result":{"ok":false}}',
        b'{"nextExecuteAt":null}',
        b'{"nextexecuteat":"2026-12-21T15:30:00Z"}',
        b"[" * 60_000,
        b'{"a":' * 10_000,
    ],
)
def test_a_2xx_is_fired_unless_an_object_says_otherwise(status: int, body: bytes) -> None:
    assert answered(status, body) == Classification(Disposition.FIRED)


def test_a_truncated_2xx_is_fired_whatever_it_began_with() -> None:
    assert answered(200, b'{"ok":false}', truncated=True) == Classification(Disposition.FIRED)


@pytest.mark.parametrize("ok", [{}, {"ok": True}, {"ok": False}, {"ok": None}])
@pytest.mark.parametrize(
    ("given_time", "expected"),
    [
        ("2026-12-21T15:30:00Z", TOMORROW),
        ("2026-12-21T17:30:00+02:00", TOMORROW),
        ("2026-12-21T15:30:00.0000001Z", TOMORROW + timedelta(milliseconds=1)),
        ("1999-01-01T00:00:00Z", datetime(1999, 1, 1, tzinfo=UTC)),
        ("9999-12-31T23:59:59.999Z", datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)),
    ],
)
def test_next_execute_at_reschedules(ok: dict[str, object], given_time: str, expected: datetime) -> None:
    answer = answered(200, ok | {"nextExecuteAt": given_time})
    assert answer == Classification(Disposition.RESCHEDULE, next_execute_at=expected)


def test_not_ok_is_retried_by_policy() -> None:
    assert answered(200, {"ok": False}, retry_after="9") == Classification(
        Disposition.RETRY,
        retry_after_seconds=9.0,
        reason=FailureReason.NOT_OK,
        message='the receiver answered "ok": false',
    )


def test_numbers_of_any_size_do_not_hide_the_rest() -> None:
    body = '{"n": ' + "9" * 5000 + ', "x": 1e999999, "ok": false}'
    assert answered(200, body).disposition is Disposition.RETRY


NO_TIMES = ["", "soon", "2026-12-21", "2026-12-21T15:30:00", "2026-12-21T15:30:60Z", "10000-01-01T00:00:00Z", 5, 1.5]


@pytest.mark.parametrize("given_time", [*NO_TIMES, True, [], {"a": "b"}])
def test_a_next_execute_at_that_is_no_time_fires_with_a_warning(given_time: object) -> None:
    answer = answered(200, {"ok": True, "nextExecuteAt": given_time})
    assert (answer.disposition, answer.next_execute_at, answer.reason) == (Disposition.FIRED, None, None)
    assert answer.message.startswith("nextExecuteAt in the response must ") or "supported" in answer.message


@pytest.mark.parametrize("given_time", NO_TIMES)
def test_not_ok_with_a_next_execute_at_that_is_no_time_is_retried(given_time: object) -> None:
    answer = answered(200, {"ok": False, "nextExecuteAt": given_time})
    assert (answer.disposition, answer.reason) == (Disposition.RETRY, FailureReason.NOT_OK)
    assert "nextExecuteAt" in answer.message


@pytest.mark.parametrize(
    "status", [300, 301, 304, 308, 399, 408, 425, 429, 500, 502, 503, 504, 599, 600, 999, 100, 101]
)
def test_statuses_that_are_retried(status: int) -> None:
    answer = answered(status, b'{"ok":true,"nextExecuteAt":"2026-12-21T15:30:00Z"}', retry_after="120")
    assert answer == Classification(
        Disposition.RETRY,
        retry_after_seconds=120.0,
        reason=FailureReason.HTTP_STATUS,
        message=f"the receiver answered with status {status}",
    )


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 407, 409, 410, 422, 424, 426, 428, 451, 499])
def test_statuses_that_end_it(status: int) -> None:
    answer = answered(status, b'{"ok":true}', retry_after="120")
    assert answer == Classification(
        Disposition.FAILED,
        reason=FailureReason.HTTP_STATUS,
        message=f"the receiver answered with status {status}",
    )


@pytest.mark.parametrize(
    ("error", "disposition", "reason"),
    [
        (TransportError.TIMEOUT, Disposition.RETRY, FailureReason.TIMEOUT),
        (TransportError.RESOLVE, Disposition.RETRY, FailureReason.NETWORK),
        (TransportError.CONNECT, Disposition.RETRY, FailureReason.NETWORK),
        (TransportError.TLS, Disposition.RETRY, FailureReason.NETWORK),
        (TransportError.PROTOCOL, Disposition.RETRY, FailureReason.NETWORK),
        (TransportError.ABORTED, Disposition.RETRY, FailureReason.NETWORK),
        (TransportError.REFUSED_ADDRESS, Disposition.RETRY, FailureReason.REFUSED_ADDRESS),
        (TransportError.REFUSED_URL, Disposition.FAILED, FailureReason.REFUSED_URL),
    ],
)
def test_no_answer(error: TransportError, disposition: Disposition, reason: FailureReason) -> None:
    assert answered(None, error=error) == Classification(disposition, reason=reason, message="what libcurl said")


def test_every_transport_error_is_among_them() -> None:
    for error in TransportError:
        assert answered(None, error=error).reason is not None


# -- Retry-After ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, None),
        ("0", 0.0),
        (" 30 ", 30.0),
        ("21600", 21_600.0),
        ("9" * 400, MAX_RETRY_AFTER_SECONDS),
        (format_datetime(NOW + timedelta(seconds=90), usegmt=True), 90.0),
        ("Sun Dec 20 15:31:00 2026", 60.0),
        ("Sunday, 20-Dec-26 15:31:00 GMT", 60.0),
        (format_datetime(NOW - timedelta(days=4000), usegmt=True), 0.0),
        (format_datetime(NOW + timedelta(days=4000), usegmt=True), MAX_RETRY_AFTER_SECONDS),
        ("", None),
        ("Sun, 20 Dec 2026 16:30:00 +0100", None),
        ("Sun, 20 Dec 2026 15:31:00", None),
        ("20 Dec 2026", None),
        ("17 apples", None),
        ("5, 6", None),
        ("-5", None),
        ("1.5", None),
        ("soon", None),
        ("١٢", None),
        ("Sun, 99 Dec 2026 15:31:00 GMT", None),
        ("Sun, 20 Dec 999999 15:31:00 GMT", None),
    ],
)
def test_retry_after(text: str | None, expected: float | None) -> None:
    assert retry_after_seconds(text, now=NOW) == expected


# -- anything at all -----------------------------------------------------------------------------------------------

_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
_documents = st.fixed_dictionaries({}, optional={"ok": _json, "nextExecuteAt": _json, "more": _json})


@given(
    body=st.binary(max_size=200) | _documents.map(lambda document: json.dumps(document).encode()),
    status=st.integers(100, 999),
    retry_after=st.none() | st.text(max_size=40) | st.datetimes().map(format_datetime),
    truncated=st.booleans(),
)
def test_nothing_that_is_answered_raises(body: bytes, status: int, retry_after: str | None, truncated: bool) -> None:
    answer = answered(status, body, retry_after=retry_after, truncated=truncated)
    assert (answer.next_execute_at is not None) == (answer.disposition is Disposition.RESCHEDULE)
    assert (answer.reason is not None) == (answer.disposition in (Disposition.RETRY, Disposition.FAILED))
    seconds = answer.retry_after_seconds
    assert seconds is None or 0 <= seconds <= MAX_RETRY_AFTER_SECONDS


@pytest.mark.parametrize(
    ("within", "seconds"), [("10m", 600), (90, 90), ("PT1H", 3600), ("24h", 86_400), ("30d", 86_400)]
)
def test_a_202_may_take_the_work_for_a_day_at_most(within: object, seconds: float) -> None:
    taken = answered(202, {"ack": {"within": within}})

    assert (taken.disposition, taken.answer_within_seconds) == (Disposition.WAIT, seconds)


@pytest.mark.parametrize(
    "ack",
    [True, "10m", [], {}, {"within": None}, {"within": 0}, {"within": "-1s"}, {"within": "soon"}, {"within": True}],
)
def test_work_that_is_taken_for_no_time_is_tried_again(ack: object) -> None:
    found = answered(202, {"ack": ack})

    assert (found.disposition, found.reason) == (Disposition.RETRY, FailureReason.NOT_OK)
    assert "ack in the response must" in found.message


@pytest.mark.parametrize(
    ("status", "body", "disposition"),
    [
        (200, {"ack": {"within": "10m"}}, Disposition.FIRED),
        (202, {"ack": None}, Disposition.FIRED),
        (202, {"ok": False, "ack": {"within": "10m"}}, Disposition.RETRY),
        (202, {"ack": {"within": "10m"}, "nextExecuteAt": "2026-12-21T15:30:00Z"}, Disposition.WAIT),
        (503, {"ack": {"within": "10m"}}, Disposition.RETRY),
    ],
)
def test_only_a_202_takes_work(status: int, body: object, disposition: Disposition) -> None:
    assert answered(status, body).disposition is disposition
