"""What is sent for a service call: the tenant's request, with what names it to the receiver."""

from __future__ import annotations

import json
from typing import Final

from duetime.delivery.headers import Header, header_line, is_reserved_in_calls, stored_headers, visible
from duetime.delivery.port import Callback
from duetime.delivery.request import USER_AGENT
from duetime.domain.hot_dataclass import hot_dataclass
from duetime.domain.json_text import is_json
from duetime.domain.service_calls import Method, ServiceCall
from duetime.domain.targets import is_arn

CALL_ID_HEADER: Final = "x-duetime-service-call-id"
EXECUTION_ID_HEADER: Final = "x-duetime-execution-id"
ATTEMPT_HEADER: Final = "x-duetime-attempt"

_HAS_CONTENT = frozenset({Method.POST, Method.PUT, Method.PATCH})
"""Methods whose requests say that they have no content when they have none (RFC 9110, section 8.6)."""
_NO_CONTENT_TYPE = "Content-Type:"
"""Without it libcurl would call content that it is not told the type of a form."""


@hot_dataclass(frozen=True, slots=True, kw_only=True)
class CallRequest:
    """One request, final. ``body`` None: without content. ``Host`` and ``Content-Length`` are left to the client."""

    method: Method
    url: str
    headers: tuple[Header, ...]
    body: bytes | None
    timeout_seconds: int

    def callback(self, key: int) -> Callback:
        lines = tuple([header_line(name, value) for name, value in self.headers])
        if self.body == b"" and not any(name.lower() == "content-type" for name, _ in self.headers):
            lines += (_NO_CONTENT_TYPE,)
        return Callback(
            key=key,
            url=self.url,
            headers=lines,
            body=self.body,
            timeout_seconds=self.timeout_seconds,
            method=self.method,
            # Its one attempt shall not be lost to a connection that its receiver is just closing.
            has_own_connection=True,
        )


def call_request(call: ServiceCall, *, execution_id: str, attempt: int) -> CallRequest:
    """Return the request of the execution ``execution_id``, the ``attempt``-th of ``call``.

    Raises ``ValueError`` when the stored body is not JSON.
    """
    spec = call.request
    body, content_type = _body(spec.method, spec.body_json)
    given: tuple[Header, ...] = ()
    defaults: list[Header] = []
    if not is_arn(spec.url):  # a target takes no headers of HTTP
        if spec.headers_json is not None:
            given = tuple(stored_headers(spec.headers_json, is_reserved_in_calls))
        defaults = [("User-Agent", USER_AGENT), ("Accept", "*/*")]
        if content_type is not None:
            defaults.append(("Content-Type", content_type))
    if given:
        names = {name.lower() for name, _ in given}
        defaults = [header for header in defaults if header[0].lower() not in names]
    headers = (
        *defaults,
        ("x-correlation-id", visible(call.correlation_id)),
        (CALL_ID_HEADER, call.call_id),
        (EXECUTION_ID_HEADER, execution_id),
        (ATTEMPT_HEADER, str(attempt)),
        *given,
    )
    return CallRequest(
        method=spec.method, url=spec.url, headers=headers, body=body, timeout_seconds=call.timeout_seconds
    )


def _body(method: Method, body_json: str | None) -> tuple[bytes | None, str | None]:
    """Return the content and its type, as ``RequestSpec.body_json`` tells."""
    if body_json is None:
        return (b"" if method in _HAS_CONTENT else None), None
    if body_json.startswith('"'):
        text: str = json.loads(body_json)
        return text.encode(errors="replace"), "text/plain; charset=utf-8"
    if not is_json(body_json):
        raise ValueError("the stored body is not JSON")
    # A lone surrogate has no UTF-8 form; as \\udxxx it is the JSON escape that it came from.
    return body_json.encode(errors="backslashreplace"), "application/json"
