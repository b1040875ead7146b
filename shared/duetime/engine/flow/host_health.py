"""What the end of an attempt says about its host."""

from __future__ import annotations

from enum import StrEnum

from duetime.delivery.port import CallbackResult, TransportError

_GATEWAY_ERRORS = frozenset({502, 503, 504})
"""What says that the host itself is not there. A 500 is a response of the receiver to this one timer."""
_HOST_ERRORS = frozenset(
    {
        TransportError.TIMEOUT,
        TransportError.RESOLVE,
        TransportError.CONNECT,
        TransportError.TLS,
        TransportError.PROTOCOL,
    }
)


class HostSignal(StrEnum):
    ANSWERED = "answered"
    FAILED = "failed"
    """It did not answer."""
    UNAVAILABLE = "unavailable"
    """A gateway answered that the host is not there."""
    NEUTRAL = "neutral"
    """Nothing: the attempt was refused or given up by us."""


def signal_of(result: CallbackResult) -> HostSignal:
    if result.status is not None:
        return HostSignal.UNAVAILABLE if result.status in _GATEWAY_ERRORS else HostSignal.ANSWERED
    return HostSignal.FAILED if result.error in _HOST_ERRORS else HostSignal.NEUTRAL
