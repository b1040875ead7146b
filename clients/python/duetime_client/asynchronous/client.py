"""The client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

import httpx

from duetime_client import bodies
from duetime_client.asynchronous.api_keys import AsyncApiKeys
from duetime_client.asynchronous.calendars import AsyncCalendars
from duetime_client.asynchronous.event_webhooks import AsyncTenantWebhook
from duetime_client.asynchronous.namespaces import AsyncNamespaces, AsyncSigningSecrets
from duetime_client.asynchronous.schedules import AsyncSchedules
from duetime_client.asynchronous.service_calls import AsyncServiceCalls
from duetime_client.asynchronous.timers import AsyncTimers
from duetime_client.asynchronous.transport import AsyncTransport
from duetime_client.connecting import DEFAULT_TIMEOUT, Connecting
from duetime_client.models import Health, Principal, Shard
from duetime_client.requests import TENANT, Answer, any_request, health_request, openapi_request, principal_request
from duetime_client.retrying import DEFAULT_RETRIES, Retries
from duetime_client.values import UNSET


class AsyncDuetime:
    """A server, and the tenant whose service calls, keys and event webhook are meant.

    Without ``url`` and ``api_key`` the variables ``DUETIME_URL`` and ``DUETIME_API_KEY`` say where to and who, and
    without ``tenant`` the API key: the server is asked once, when it matters. An empty key is none.

    ``timeout`` is for each wait of a request. ``http_client`` brings proxies, certificates and limits of your own; it
    is left open. One client serves a whole program: it keeps its connections.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        tenant: str | None = None,
        timeout: timedelta = DEFAULT_TIMEOUT,
        retries: Retries = DEFAULT_RETRIES,
        user_agent: str | None = None,
        http_client: httpx.AsyncClient | None = None,
    ) -> None:
        """Connect nowhere yet. Raises ``InvalidArgument``."""
        connecting = Connecting.of(
            url, tenant=tenant, api_key=api_key, timeout=timeout, retries=retries, user_agent=user_agent
        )
        tenant_path = f"/v1/tenants/{TENANT}"
        self._transport = AsyncTransport(connecting, http_client)
        self.namespaces = AsyncNamespaces(self._transport)
        self.calendars = AsyncCalendars(self._transport)
        self.schedules = AsyncSchedules(self._transport)
        self.service_calls = AsyncServiceCalls(self._transport, tenant_path)
        self.event_webhook = AsyncTenantWebhook(self._transport, tenant_path)
        self.api_keys = AsyncApiKeys(self._transport, tenant_path)

    def __repr__(self) -> str:
        connecting = self._transport.connecting
        return f"{type(self).__name__}({connecting.url!r}, tenant={connecting.tenant!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close its connections."""
        await self._transport.close()

    def timers(self, namespace: str = "default") -> AsyncTimers:
        """Return the timers of a namespace. Nothing is asked for yet."""
        return AsyncTimers(self._transport, namespace)

    def signing_secrets(self, namespace: str = "default") -> AsyncSigningSecrets:
        """Return the signing secrets of a namespace. Nothing is asked for yet."""
        return AsyncSigningSecrets.of_namespace(self._transport, namespace)

    def shards(self, *, page_size: int = bodies.PAGE_ITEMS) -> AsyncIterator[Shard]:
        """List shards and who polls them, in order of id."""
        return self._transport.items("listShards", "/v1/shards", Shard, [("limit", str(page_size))])

    async def principal(self) -> Principal:
        """Tell for which tenant and with which role the API key acts."""
        return await self._transport.send(principal_request())

    async def health(self) -> Health:
        """Tell whether the server, with its store, is ready. One that says that it is not is no error."""
        return await self._transport.send(health_request())

    async def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document of the server."""
        return await self._transport.send(openapi_request())

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Sequence[tuple[str, str]] = (),
        body: Any = UNSET,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send any request of the API and return its answer as it came, for what has no method here.

        ``path`` is encoded; ``{tenant}`` in it stands for the tenant. Errors, repeats and idempotency keys are as for
        every other method.
        """
        return await self._transport.send(any_request(method, path, query=query, body=body, headers=headers))
