from __future__ import annotations

import pytest

from duetime.calls.message_log import LogRules
from duetime.calls.results import execution_result
from duetime.delivery.port import CallbackResult, TransportError
from duetime.domain.call_steps import ExecutionResult
from duetime.domain.service_calls import CallFailure
from tests.support.clock import NOW


def result_of(
    status: int | None, *, error: TransportError | None = None, message: str = "", retry_after: str | None = None
) -> ExecutionResult:
    answer = CallbackResult(1, status, b"body", retry_after, error, message, 0.0126)
    return execution_result(answer, rules=LogRules(), now=NOW)


@pytest.mark.parametrize("status", [200, 201, 204, 299])
def test_a_2xx_succeeds_whatever_its_body_says(status: int) -> None:
    result = result_of(status)
    assert (result.failure, result.response_status, result.duration_ms) == (None, status, 13)
    assert result.response is not None
    assert result.response.body == "body"


@pytest.mark.parametrize(
    ("status", "is_final"),
    [
        (199, False),
        (301, False),
        (304, False),
        (400, True),
        (401, True),
        (404, True),
        (409, True),
        (499, True),
        (408, False),
        (425, False),
        (429, False),
        (500, False),
        (503, False),
        (599, False),
    ],
)
def test_what_is_no_2xx_fails_with_its_response(status: int, is_final: bool) -> None:
    result = result_of(status)
    assert (result.failure, result.response_status, result.is_final) == (CallFailure.HTTP_STATUS, status, is_final)
    assert result.message == f"the receiver answered with status {status}"
    assert result.response is not None


@pytest.mark.parametrize("error", TransportError)
def test_every_error_has_a_reason_and_only_a_url_is_hopeless(error: TransportError) -> None:
    result = result_of(None, error=error)
    known = {
        TransportError.TIMEOUT: CallFailure.TIMEOUT,
        TransportError.REFUSED_URL: CallFailure.REFUSED_URL,
        TransportError.REFUSED_ADDRESS: CallFailure.REFUSED_ADDRESS,
    }
    assert result.failure is known.get(error, CallFailure.NETWORK)
    assert result.is_final == (error is TransportError.REFUSED_URL)
    assert (result.response_status, result.response, result.message) == (None, None, error.value)


def test_the_reason_is_told_as_the_client_tells_it() -> None:
    assert result_of(None, error=TransportError.CONNECT, message="refused").message == "refused"


@pytest.mark.parametrize(
    ("text", "seconds"), [("30", 30.0), ("Sun, 20 Dec 2026 15:31:00 GMT", 60.0), ("soon", None), (None, None)]
)
def test_the_receiver_may_say_when_to_come_back(text: str | None, seconds: float | None) -> None:
    assert result_of(503, retry_after=text).retry_after_seconds == seconds
