"""API keys of a tenant."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime, timedelta

from duetime_client import bodies
from duetime_client.asynchronous.transport import AsyncTransport
from duetime_client.models import ApiKey, CreatedApiKey, Role
from duetime_client.requests import changing, removing, segment


class AsyncApiKeys:
    """They act for the tenant, each with a role."""

    def __init__(self, transport: AsyncTransport, tenant_path: str) -> None:
        self._transport = transport
        self._path = f"{tenant_path}/api-keys"

    async def create(
        self,
        *,
        role: Role | str,
        name: str | None = None,
        expires_at: datetime | None = None,
        expires_in: timedelta | None = None,
    ) -> CreatedApiKey:
        """Create a key, which is shown this once. Without an end it never expires.

        Where its answer was lost, ``Conflict`` (``secret_shown_once``): look at ``list`` then, and ``delete`` what
        nobody knows.
        """
        body = bodies.body(bodies.API_KEY, role=role, name=name, expires_at=expires_at, expires_in=expires_in)
        return await self._transport.send(changing("createApiKey", "POST", self._path, CreatedApiKey, body))

    def list(self, *, page_size: int = bodies.PAGE_ITEMS) -> AsyncIterator[ApiKey]:
        """List keys in order of creation, expired ones too."""
        return self._transport.items("listApiKeys", self._path, ApiKey, [("limit", str(page_size))])

    async def delete(self, key_id: str) -> None:
        """Delete a key, whichever it is: the one in use too."""
        await self._transport.send(removing("deleteApiKey", f"{self._path}/{segment('key_id', key_id)}"))
