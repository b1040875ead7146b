"""Which headers a client may add to its callbacks, and to its service calls.

The API refuses the others, and ``delivery.request`` never sends them.
"""

from __future__ import annotations

_FRAMING = frozenset(
    {
        # These frame the message or belong to the connection.
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_OURS = frozenset(
    {
        # What a receiver of callbacks relies on cannot come from a client.
        "content-type",
        "traceparent",
        "tracestate",
        "user-agent",
        "x-correlation-id",
    }
)
_OURS_IN_CALLS = frozenset({"x-correlation-id"})
_RESERVED_PREFIX = "webhook-"  # what identifies and signs a callback


def is_reserved(name: str) -> bool:
    """True when a custom header of a callback cannot have this name, in any case of its letters."""
    lower = name.lower()
    return lower in _FRAMING or lower in _OURS or lower.startswith(_RESERVED_PREFIX)


def is_reserved_in_calls(name: str) -> bool:
    """True when a header of a service call's request cannot have this name, in any case of its letters.

    The request is the tenant's own, with its content type and user agent.
    """
    lower = name.lower()
    return lower in _FRAMING or lower in _OURS_IN_CALLS
