"""A client of the HTTP API for commands: requests, pages, and events followed as a stream."""

from __future__ import annotations

import http.client
import json
import re
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from duetime import __version__
from duetime.delivery.trust import find_ca_file
from duetime.domain.errors import DuetimeError, InvalidSettings
from duetime_client.sse import EVENT_STREAM, Decoder

TIMEOUT_SECONDS: Final = 60.0
"""For each wait of a request; a stream shows within 15 s that it lives."""
_API_KEY = re.compile(r"[\x21-\x7e]*")
_JSON = "application/json"
_READ_BYTES = 65_536
_MAX_FAILURES = 5
_PAUSE_SECONDS = 1.0


class ApiProblem(DuetimeError):
    """The API has refused; the message is what it says."""

    code = "api_problem"

    def __init__(self, message: str, *, status: int, problem_code: str) -> None:
        super().__init__(message)
        self.status = status
        self.problem_code = problem_code


class ApiUnreachable(DuetimeError):
    """No answer from the server, or none of an API."""

    code = "api_unreachable"


class ApiClient:
    """One server. ``sleep`` waits between two tries of a stream."""

    def __init__(self, url: str, *, api_key: str, sleep: Callable[[float], None] = time.sleep) -> None:
        """Raises ``InvalidSettings`` when ``url`` is none of an API, or ``api_key`` cannot be sent."""
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            port = 0
        if parts.scheme not in ("http", "https") or not parts.hostname or port == 0 or parts.query or parts.username:
            raise InvalidSettings("--url: must be an http or https URL, like http://127.0.0.1:8080")
        self._is_tls = parts.scheme == "https"
        self._host, self._port = parts.hostname, port
        self._prefix = parts.path.rstrip("/")
        self._url = url
        self._sleep = sleep
        self._headers = {"user-agent": f"duetime/{__version__}", "accept": _JSON}
        if api_key and _API_KEY.fullmatch(api_key.strip()) is None:  # http.client would show it
            raise InvalidSettings("DUETIME_API_KEY: must be one line of printable ASCII characters, without spaces")
        if api_key.strip():
            self._headers["authorization"] = f"Bearer {api_key.strip()}"

    def call(
        self,
        method: str,
        path: str,
        body: str | None = None,
        *,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> str:
        """The body of a good answer; the empty text of one that has none (204). Raises ``ApiProblem`` and
        ``ApiUnreachable``.
        """
        sent = dict(headers or {}) | ({} if body is None else {"content-type": _JSON})
        with self._answer(method, path, body, query=query, headers=sent) as response:
            text = response.read().decode(errors="replace")
            if response.status != 204:
                self._read_object(text)
            return text

    def items(self, path: str, query: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """The items of a list, page by page."""
        cursor: dict[str, str] = {}
        while True:
            page = json.loads(self.call("GET", path, query={**query, **cursor}))
            yield from page["items"]
            if page["nextCursor"] is None:
                return
            cursor = {"cursor": page["nextCursor"]}

    def follow(self, path: str) -> Iterator[dict[str, Any]]:
        """All events at ``path`` from the first one, as they happen, to the last one.

        A connection that is lost is made again behind the last event. A server that does not send streams is asked
        for further events every second.
        """
        after, failures = 0, 0
        while True:
            try:
                for event in self._stream(path, after):
                    if event is None:
                        return
                    after, failures = event["sequence"], 0
                    yield event
            except ApiUnreachable:
                failures += 1
                if failures == _MAX_FAILURES:
                    raise
            self._sleep(_PAUSE_SECONDS)

    def _stream(self, path: str, after: int) -> Iterator[dict[str, Any] | None]:
        """The events of one connection; None when there will be no more."""
        headers = {"accept": f"{EVENT_STREAM}, {_JSON};q=0.5", "last-event-id": str(after)}
        with self._answer("GET", path, headers=headers) as response:
            if response.status == 204:
                yield None
            elif EVENT_STREAM in (response.headers["content-type"] or ""):
                yield from _read_stream(response)
            else:
                page = self._read_object(response.read().decode(errors="replace"))
                yield from page["items"]
                if page["complete"]:
                    yield None

    def _read_object(self, text: str) -> dict[str, Any]:
        """One thing with its id, or a page of items: all that the API answers. Raises ``ApiUnreachable``."""
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict) or not found.keys() & {"id", "items"}:
            raise ApiUnreachable(f"{self._url}: what answers there is not Duetime's API")
        return found

    @contextmanager
    def _answer(
        self,
        method: str,
        path: str,
        body: str | None = None,
        *,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str],
    ) -> Iterator[http.client.HTTPResponse]:
        """A good answer, while its connection is open."""
        target = f"{self._prefix}{path}" + (f"?{urlencode(query, doseq=True)}" if query else "")
        connection = self._connection()
        try:
            content = None if body is None else body.encode(errors="surrogatepass")
            connection.request(method, target, content, {**self._headers, **headers})
            response = connection.getresponse()
            if not 200 <= response.status < 300:
                raise _problem(response.status, response.read())
            yield response
        except (OSError, http.client.HTTPException, UnicodeError) as error:  # UnicodeError: no name of a host
            raise ApiUnreachable(f"{self._url}: {error or type(error).__name__}") from error
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        if not self._is_tls:
            return http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_SECONDS)
        context = ssl.create_default_context(cafile=find_ca_file())
        return http.client.HTTPSConnection(self._host, self._port, timeout=TIMEOUT_SECONDS, context=context)


def _read_stream(response: http.client.HTTPResponse) -> Iterator[dict[str, Any] | None]:
    """The events of a stream, then None if the server says that they are all."""
    decoder = Decoder()
    while content := response.read1(_READ_BYTES):
        for message in decoder.feed(content):
            if message.event == "end":
                yield None
                return
            yield json.loads(message.data)


def _problem(status: int, body: bytes) -> ApiProblem:
    """What an answer that is none of ours says as well: a gateway has its own words."""
    try:
        described = json.loads(body)
        detail, code = described.get("detail") or described.get("message"), described.get("code", "")
        faults = [f"{fault['field']}: {fault['message']}" for fault in described.get("errors", [])]
    except (ValueError, AttributeError, KeyError, TypeError):
        detail, code, faults = None, "", []
    message = "; ".join(faults) if len(faults) > 1 else detail or "without a word"
    return ApiProblem(f"{message} (HTTP {status})", status=status, problem_code=str(code))
