"""What an exchange means for the service call that it was made for. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from duetime.calls.message_log import LogRules, logged_response
from duetime.delivery.port import CallbackResult, TransportError
from duetime.domain.call_steps import ExecutionResult
from duetime.domain.service_calls import CallFailure
from duetime.engine.response.classify import RETRIED_4XX, retry_after_seconds

_FAILURES: Final = {
    TransportError.TIMEOUT: CallFailure.TIMEOUT,
    TransportError.REFUSED_URL: CallFailure.REFUSED_URL,
    TransportError.REFUSED_ADDRESS: CallFailure.REFUSED_ADDRESS,
}
"""Every other error is one of the network."""


def execution_result(result: CallbackResult, *, rules: LogRules, now: datetime) -> ExecutionResult:
    """Make the result: a 2xx is a success, everything else is not; the response is kept either way.

    Final, whatever the retry policy says, is what will be the same next time: a URL that may not be called, and a
    4xx but for those that ask to come back (408, 425, 429).
    """
    duration_ms = round(result.duration_seconds * 1000)
    status = result.status
    if status is None:
        assert result.error is not None
        return ExecutionResult(
            response_status=None,
            response=None,
            duration_ms=duration_ms,
            failure=_FAILURES.get(result.error, CallFailure.NETWORK),
            message=result.message or result.error,
            is_final=result.error is TransportError.REFUSED_URL,
        )
    response = logged_response(result, rules)
    if 200 <= status < 300:
        return ExecutionResult(response_status=status, response=response, duration_ms=duration_ms)
    return ExecutionResult(
        response_status=status,
        response=response,
        duration_ms=duration_ms,
        failure=CallFailure.HTTP_STATUS,
        message=f"the receiver answered with status {status}",
        retry_after_seconds=retry_after_seconds(result.retry_after, now=now),
        is_final=400 <= status < 500 and status not in RETRIED_4XX,
    )
