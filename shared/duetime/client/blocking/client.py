# Made of duetime/client/asynchronous by scripts/write_client.py: change that.
"""The client."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

import httpx

from duetime.client import bodies
from duetime.client.blocking.api_keys import ApiKeys
from duetime.client.blocking.event_webhooks import TenantWebhook
from duetime.client.blocking.namespaces import Namespaces, SigningSecrets
from duetime.client.blocking.service_calls import ServiceCalls
from duetime.client.blocking.timers import Timers
from duetime.client.blocking.transport import Transport
from duetime.client.connecting import DEFAULT_TIMEOUT, Connecting
from duetime.client.models import Health, Principal, Shard
from duetime.client.requests import health_request, openapi_request, principal_request, segment
from duetime.client.retrying import DEFAULT_RETRIES, Retries


class Duetime:
    """A server, and the tenant whose service calls, keys and event webhook are meant.

    ``timeout`` is for each wait of a request. ``http_client`` brings proxies, certificates and limits of your own; it
    is left open. One client serves a whole program: it keeps its connections.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        tenant: str = "default",
        timeout: timedelta = DEFAULT_TIMEOUT,
        retries: Retries = DEFAULT_RETRIES,
        user_agent: str | None = None,
        http_client: httpx.Client | None = None,
    ) -> None:
        """Raises ``InvalidArgument``."""
        connecting = Connecting.of(
            url, tenant=tenant, api_key=api_key, timeout=timeout, retries=retries, user_agent=user_agent
        )
        tenant_path = f"/v1/tenants/{segment('tenant', tenant)}"
        self._transport = Transport(connecting, http_client)
        self.namespaces = Namespaces(self._transport)
        self.service_calls = ServiceCalls(self._transport, tenant_path)
        self.event_webhook = TenantWebhook(self._transport, tenant_path)
        self.api_keys = ApiKeys(self._transport, tenant_path)

    def __repr__(self) -> str:
        connecting = self._transport.connecting
        return f"{type(self).__name__}({connecting.url!r}, tenant={connecting.tenant!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close its connections."""
        self._transport.close()

    def timers(self, namespace: str = "default") -> Timers:
        """The timers of a namespace. Nothing is asked for yet."""
        return Timers(self._transport, namespace)

    def signing_secrets(self, namespace: str = "default") -> SigningSecrets:
        """The signing secrets of a namespace. Nothing is asked for yet."""
        return SigningSecrets.of_namespace(self._transport, namespace)

    def shards(self, *, page_size: int = bodies.PAGE_ITEMS) -> Iterator[Shard]:
        """Shards and who polls them, in order of id."""
        return self._transport.items("listShards", "/v1/shards", Shard, [("limit", str(page_size))])

    def principal(self) -> Principal:
        """For which tenant and with which role the API key acts."""
        return self._transport.send(principal_request())

    def health(self) -> Health:
        """Whether the server, with its store, is ready. One that says that it is not is no error."""
        return self._transport.send(health_request())

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document of the server."""
        return self._transport.send(openapi_request())
