"""Which headers a client may add to its callbacks, and to its service calls; how headers are stored and sent.

The API refuses the others, and nothing in this room sends them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from urllib.parse import quote

SCHEDULE_ID_HEADER = "x-duetime-schedule-id"
SCHEDULED_AT_HEADER = "x-duetime-scheduled-at"
OCCURRENCE_HEADER = "x-duetime-occurrence"

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
        SCHEDULE_ID_HEADER,
        SCHEDULED_AT_HEADER,
        OCCURRENCE_HEADER,
    }
)
_OURS_IN_CALLS = frozenset({"x-correlation-id"})
_RESERVED_PREFIX = "webhook-"  # what identifies and signs a callback
_RESERVED_PREFIX_IN_CALLS = "x-duetime-"  # what identifies a service call and its execution

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110: a token
_VALUE = re.compile(r"[\t\x20-\x7e\xa0-\xff]*")
_VISIBLE_ASCII = "".join(map(chr, range(0x21, 0x7F)))

Header = tuple[str, str]


def is_reserved(name: str) -> bool:
    """Tell whether a custom header of a callback cannot have this name, in any spelling."""
    name = _folded(name)
    return name in _FRAMING or name in _OURS or name.startswith(_RESERVED_PREFIX)


def is_reserved_in_calls(name: str) -> bool:
    """Tell whether a header of a service call's request cannot have this name, in any spelling.

    The request is the tenant's own, with its content type and user agent.
    """
    name = _folded(name)
    return name in _FRAMING or name in _OURS_IN_CALLS or name.startswith(_RESERVED_PREFIX_IN_CALLS)


def _folded(name: str) -> str:
    """Fold a name as receivers compare names: in any case, and behind CGI, WSGI and the like ``_`` is ``-`` as
    well."""
    return name.lower().replace("_", "-")


def stored_headers(headers_json: str, is_refused: Callable[[str], bool]) -> Iterator[Header]:
    """Return names and values of the JSON object of strings ``headers_json``, in order.

    The API refuses what is left out here. It is left out as well, so that a row from another source cannot split
    the request or speak for Duetime; for the same reason text that is no object means no headers.
    """
    try:
        headers = json.loads(headers_json)
    except (ValueError, RecursionError):
        return
    for name, value in headers.items() if isinstance(headers, dict) else ():
        if _NAME.fullmatch(name) is None or is_refused(name):
            continue
        if isinstance(value, str) and _VALUE.fullmatch(value):
            yield name, value.strip()


def header_line(name: str, value: str) -> str:
    """Make a line as ``Callback.headers`` has it."""
    return f"{name}: {value}" if value else f"{name};"


def visible(text: str) -> str:
    """Return ``text`` where it is visible ASCII, percent-encoded UTF-8 where it is not."""
    return text if text.isascii() and text.isprintable() else quote(text, safe=_VISIBLE_ASCII, errors="replace")
