"""What both transports make of a URL, a key and their options, and of httpx's errors."""

from __future__ import annotations

import os
import platform
import re
import ssl
from collections.abc import Generator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
from uuid6 import uuid7

from duetime_client import __version__
from duetime_client.errors import DuetimeError, InvalidArgument, Unreachable
from duetime_client.requests import JSON, Request, segment
from duetime_client.retrying import Retries
from duetime_client.values import duration, of_type

DEFAULT_URL: Final = "http://127.0.0.1:8080"
DEFAULT_TIMEOUT: Final = timedelta(seconds=30)
KEPT_SECONDS: Final = 4.0
"""How long an idle connection is kept: servers close theirs after 5 s, and a request must not meet that."""
REQUEST_ID: Final = "x-request-id"
IDEMPOTENCY_KEY: Final = "idempotency-key"
_KEYED_METHODS: Final = frozenset({"POST", "PUT", "PATCH"})
_STREAM_SILENCE_SECONDS = 45.0
"""A stream shows every 15 s that it lives."""
_CONNECT_SECONDS = 10.0
_KEY = re.compile(r"[!-~]+")
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Connecting:
    """Where to and how."""

    url: str
    tenant: str | None
    api_key: str | None = field(repr=False)
    timeout_seconds: float
    retries: Retries
    user_agent: str

    @classmethod
    def of(
        cls,
        url: str | None,
        *,
        tenant: str | None,
        api_key: str | None,
        timeout: timedelta,
        retries: Retries,
        user_agent: str | None,
    ) -> Connecting:
        """Fill in from the environment what is not given. Raises ``InvalidArgument``, and never tells the key."""
        url = os.environ.get("DUETIME_URL") or DEFAULT_URL if url is None else url
        api_key = (os.environ.get("DUETIME_API_KEY", "").strip() if api_key is None else api_key) or None
        if tenant is not None:
            segment("tenant", tenant)
        if api_key is not None and not (isinstance(api_key, str) and _KEY.fullmatch(api_key)):
            raise InvalidArgument("api_key: must be printable ASCII without spaces, like dtk_...")
        duration("timeout", timeout)
        if not timeout:
            raise InvalidArgument("timeout: must be more than 0")
        own = f"duetime-client/{__version__} python/{platform.python_version()}"
        return cls(
            url=_checked_url(url),
            tenant=tenant,
            api_key=api_key,
            timeout_seconds=timeout.total_seconds(),
            retries=of_type(Retries, "retries", retries),
            user_agent=f"{user_agent} {own}" if user_agent else own,
        )

    def headers(self, request: Request[Any]) -> dict[str, str]:
        """Make the headers of all tries of a request: one request id, which the server's log has, and one idempotency
        key."""
        given = {"accept": JSON, "user-agent": self.user_agent, REQUEST_ID: str(uuid7())}
        if request.method in _KEYED_METHODS and not request.has_own_key:
            given[IDEMPOTENCY_KEY] = str(uuid7())
        return given | dict(request.headers)

    def trust(self) -> ssl.SSLContext | bool:
        """Trust as httpx does; without TLS, nobody, since loading all authorities takes a while."""
        return True if self.url.startswith("https") else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

    def timeout(self, *, is_stream: bool = False) -> httpx.Timeout:
        """Return the limit for each wait of a request."""
        seconds = self.timeout_seconds
        read = max(seconds, _STREAM_SILENCE_SECONDS) if is_stream else seconds
        return httpx.Timeout(seconds, connect=min(seconds, _CONNECT_SECONDS), read=read)


class ApiKeyAuth(httpx.Auth):
    """Puts the key into requests, and into nothing else."""

    def __init__(self, api_key: str | None) -> None:
        self._api_key = api_key

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        if self._api_key is not None:
            request.headers["authorization"] = f"Bearer {self._api_key}"
        yield request


def failure(error: Exception, url: str, request_id: str | None) -> DuetimeError:
    """Return what an error of httpx means."""
    if isinstance(error, httpx.LocalProtocolError | httpx.UnsupportedProtocol | httpx.InvalidURL | UnicodeError):
        return InvalidArgument("this cannot be sent over HTTP")  # its text may have a header in it
    message = f"{url}: {str(error) or type(error).__name__} (request {request_id})"
    return Unreachable(message, may_have_been_done=not isinstance(error, _NOT_SENT), request_id=request_id)


def _checked_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except (ValueError, TypeError, AttributeError):
        is_good = False
    # User information is a secret, so a URL is not shown.
    if not is_good or parts.username is not None or parts.query or parts.fragment:
        raise InvalidArgument("url: must be an http or https URL of a server, like http://127.0.0.1:8080")
    return url.rstrip("/")
