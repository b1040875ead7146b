from __future__ import annotations

import pytest

from duetime.delivery.port import CallbackResult, TransportError
from duetime.engine.flow.queues import HostSignal, signal_of


def result(status: int | None, error: TransportError | None = None) -> CallbackResult:
    return CallbackResult(1, status, b"", None, error, "", 0.1)


@pytest.mark.parametrize(
    ("status", "ending"),
    [
        *((status, HostSignal.ANSWERED) for status in (200, 301, 404, 429, 500)),
        *((status, HostSignal.UNAVAILABLE) for status in (502, 503, 504)),
    ],
)
def test_only_a_gateway_says_that_the_host_is_not_there(status: int, ending: HostSignal) -> None:
    assert signal_of(result(status)) is ending


@pytest.mark.parametrize(
    ("error", "ending"),
    [
        (TransportError.TIMEOUT, HostSignal.FAILED),
        (TransportError.CONNECT, HostSignal.FAILED),
        (TransportError.REFUSED_ADDRESS, HostSignal.NEUTRAL),
        (TransportError.ABORTED, HostSignal.NEUTRAL),
    ],
)
def test_what_we_refused_or_gave_up_says_nothing_of_the_host(error: TransportError, ending: HostSignal) -> None:
    assert signal_of(result(None, error)) is ending
