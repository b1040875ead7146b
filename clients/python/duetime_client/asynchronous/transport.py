"""Requests over HTTP: sent, tried again, and followed as streams."""

from __future__ import annotations

import logging
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import anyio
import httpx

from duetime_client.call_models import CallEvent
from duetime_client.connecting import KEPT_SECONDS, REQUEST_ID, ApiKeyAuth, Connecting, failure
from duetime_client.errors import DuetimeError, InvalidArgument
from duetime_client.following import Following
from duetime_client.models import PageT, summed
from duetime_client.requests import TENANT, Answer, Request, changing, listing, principal_request, segment
from duetime_client.retrying import Tries, is_gone

T = TypeVar("T")

logger = logging.getLogger(__name__)


class AsyncTransport:
    """``http_client`` is the user's own, which is not closed here; without one, one is made."""

    def __init__(self, connecting: Connecting, http_client: httpx.AsyncClient | None) -> None:
        self.connecting = connecting
        self._is_own = http_client is None
        self._http = http_client or httpx.AsyncClient(
            verify=connecting.trust(),
            limits=httpx.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=KEPT_SECONDS),
        )
        self._auth = ApiKeyAuth(connecting.api_key)
        # A server that asks for no key has nobody to know a tenant by.
        self._tenant = connecting.tenant or (None if connecting.api_key else "default")

    async def close(self) -> None:
        if self._is_own:
            await self._http.aclose()

    async def send(self, request: Request[T]) -> T:
        """Send ``request``: what was answered. It is tried again while that may help; raises what the last try came
        to."""
        request = await self._addressed(request)
        tries = Tries(self.connecting.retries, random.random)
        headers = self.connecting.headers(request)
        while True:
            try:
                return request.read(await self._answer(request, headers, may_be_second=tries.may_be_second))
            except DuetimeError as error:
                if request.gone is not None and is_gone(error, may_be_second=tries.may_be_second):
                    return request.gone()
                wait = tries.wait_seconds(error)
                logger.info("%s is tried again in %.2f s: %s", request.operation, wait, error)
            await anyio.sleep(wait)

    async def _addressed(self, request: Request[T]) -> Request[T]:
        """Put the tenant into the path, which the key says where nobody else did."""
        if TENANT not in request.path:
            return request
        if self._tenant is None:
            self._tenant = (await self.send(principal_request())).tenant_id or "default"
        return replace(request, path=request.path.replace(TENANT, segment("tenant", self._tenant)))

    async def items(
        self, operation: str, path: str, kind: type[T], query: Sequence[tuple[str, str]] = ()
    ) -> AsyncIterator[T]:
        """Yield the items of a list, page by page."""
        cursor: str | None = None
        while True:
            page = await self.send(listing(operation, path, kind, query, cursor))
            for item in page.items:
                yield item
            cursor = page.next_cursor
            if cursor is None:
                return

    async def each_page(
        self,
        operation: str,
        path: str,
        kind: type[PageT],
        body: Mapping[str, Any],
        on_page: Callable[[PageT], None] | None = None,
    ) -> PageT:
        """Do a work of many pages: what all requests did together. ``on_page`` is told what each did."""
        total: PageT | None = None
        cursor: str | None = None
        while True:
            sent = body if cursor is None else {**body, "cursor": cursor}
            page = await self.send(changing(operation, "POST", path, kind, sent))
            if on_page is not None:
                on_page(page)
            total, cursor = page if total is None else summed(total, page), page.next_cursor
            if cursor is None:
                return total

    async def follow(self, following: Following) -> AsyncGenerator[CallEvent, None]:
        """Yield events until there will be no more."""
        while not following.is_over:
            response = None
            try:
                request = await self._addressed(following.request())
                response = await self._open(request, self.connecting.headers(request), is_stream=True)
                async for event in self._events(response, following):
                    yield event
            except DuetimeError as error:
                following.failed(error)
            finally:
                if response is not None:
                    await response.aclose()
            if not following.is_over:
                await anyio.sleep(following.wait_seconds())

    async def _events(self, response: httpx.Response, following: Following) -> AsyncIterator[CallEvent]:
        """Yield those of one connection."""
        if response.status_code >= 300 or not following.is_stream(response.headers.get("content-type", "")):
            answer = await self._read(response)
            for event in following.answer_events(answer):
                yield event
            return
        try:
            async for content in response.aiter_bytes():
                for event in following.stream_events(content):
                    yield event
                if following.is_over:
                    return
        except httpx.HTTPError as error:
            raise self._failure(error, response.request) from error

    async def _answer(self, request: Request[Any], headers: Mapping[str, str], *, may_be_second: bool) -> Answer:
        """Return a good response. Raises ``DuetimeError``."""
        response = await self._open(request, headers)
        try:
            answer = await self._read(response, may_be_second=may_be_second)
        finally:
            await response.aclose()
        error = answer.error()
        if error is not None and not request.is_good(answer):
            raise error
        return answer

    async def _open(
        self, request: Request[Any], headers: Mapping[str, str], *, is_stream: bool = False
    ) -> httpx.Response:
        """Return an answer whose head has arrived."""
        if self._http.is_closed:  # httpx's own error is none of its family
            raise InvalidArgument("the client is closed")
        try:
            built = self._http.build_request(
                request.method,
                self.connecting.url + request.target(),
                content=request.content,
                headers=dict(headers),
                timeout=self.connecting.timeout(is_stream=is_stream),
            )
        except (httpx.InvalidURL, UnicodeError) as error:
            raise failure(error, self.connecting.url, None) from error
        try:
            return await self._http.send(built, auth=self._auth, follow_redirects=False, stream=True)
        except (httpx.HTTPError, UnicodeError) as error:  # UnicodeError: no name of a host
            raise self._failure(error, built) from error

    def _failure(self, error: Exception, request: httpx.Request) -> DuetimeError:
        return failure(error, self.connecting.url, request.headers[REQUEST_ID])

    async def _read(self, response: httpx.Response, *, may_be_second: bool = False) -> Answer:
        try:
            content = await response.aread()
        except httpx.HTTPError as error:
            raise self._failure(error, response.request) from error
        return Answer(response.status_code, response.headers, content, may_be_second)
