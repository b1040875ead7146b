"""Which headers a client may add to its callbacks.

The API refuses the others, and ``delivery.request`` never sends them.
"""

from __future__ import annotations

_RESERVED = frozenset(
    {
        # Ours: what a receiver relies on cannot come from a client.
        "content-type",
        "traceparent",
        "tracestate",
        "user-agent",
        "x-correlation-id",
        # HTTP's own: these frame the message or belong to the connection.
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
_RESERVED_PREFIX = "webhook-"  # what identifies and signs a callback


def is_reserved(name: str) -> bool:
    """True when a custom header cannot have this name, in any case of its letters."""
    lower = name.lower()
    return lower in _RESERVED or lower.startswith(_RESERVED_PREFIX)
