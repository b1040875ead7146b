"""Namespaces, and the signing secrets of namespaces and of event webhooks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Unpack

from duetime_client import bodies
from duetime_client.asynchronous.transport import AsyncTransport
from duetime_client.models import CreatedSecret, Namespace, NamespaceArguments, NamespaceDeletion, SigningSecret
from duetime_client.requests import Request, changing, reading, removing, revision_header, segment

_PATH = "/v1/namespaces"


class AsyncNamespaces:
    """The namespaces of a tenant."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    def list(self, *, page_size: int = bodies.PAGE_ITEMS) -> AsyncIterator[Namespace]:
        """List namespaces by name, a page at a time."""
        return self._transport.items("listNamespaces", _PATH, Namespace, [("limit", str(page_size))])

    async def get(self, name: str) -> Namespace:
        """Return a namespace. Raises ``NotFound``."""
        return await self._transport.send(reading("getNamespace", _of(name), Namespace))

    async def put(
        self, name: str, *, if_revision: int | None = None, **settings: Unpack[NamespaceArguments]
    ) -> Namespace:
        """Create a namespace, confirm it, or change its settings. What is not given stays, None clears a setting.

        ``num_shards`` and ``dedicated`` do not change by this: other values than it has are a ``Conflict``.
        """
        body = bodies.patch(bodies.NAMESPACE, **settings)
        request = changing("putNamespace", "PUT", _of(name), Namespace, body, if_revision=if_revision)
        return await self._transport.send(request)

    async def pause(self, name: str, *, reason: str | None = None, if_revision: int | None = None) -> Namespace:
        """Fire nothing of it until it is resumed; this takes some seconds. Timers are created and changed as ever."""
        body = bodies.conditions(reason=reason)
        path = f"{_of(name)}/pause"
        request = changing("pauseNamespace", "POST", path, Namespace, body, if_revision=if_revision)
        return await self._transport.send(request)

    async def resume(self, name: str, *, if_revision: int | None = None) -> Namespace:
        """Fire again. What became due meanwhile is fired at once, or expires: as its ``misfire`` says."""
        path = f"{_of(name)}/resume"
        request = changing("resumeNamespace", "POST", path, Namespace, if_revision=if_revision)
        return await self._transport.send(request)

    async def reshard(self, name: str, *, num_shards: int, if_revision: int | None = None) -> Namespace:
        """Give it another number of shards while it runs. New timers go there two minutes from now, when the last of
        its ``earlier_shards`` end; the others stay where they are. A ``Conflict`` before then.
        """
        body = bodies.patch(bodies.NAMESPACE, num_shards=num_shards)
        path = f"{_of(name)}/reshard"
        request = changing("reshardNamespace", "POST", path, Namespace, body, if_revision=if_revision)
        return await self._transport.send(request)

    async def delete(self, name: str, *, force: bool = False, if_revision: int | None = None) -> NamespaceDeletion:
        """Take one bounded step of its deletion: repeat it, after a second, until ``done``.

        ``force`` deletes its timers too. A ``Conflict`` without it where there are any. ``NotFound`` when it is gone.
        """
        request = Request(
            operation="deleteNamespace",
            method="DELETE",
            path=_of(name),
            query=(("force", "true"),) if force else (),
            headers=revision_header(if_revision),
            read=lambda answer: answer.as_a(NamespaceDeletion),
            gone=lambda: NamespaceDeletion(removed=0, done=True),
        )
        return await self._transport.send(request)


class AsyncSigningSecrets:
    """What callbacks of a namespace, or events, are signed with."""

    def __init__(self, transport: AsyncTransport, path: str, *, operations: tuple[str, str, str]) -> None:
        self._transport = transport
        self._path = f"{path}/secrets"
        self._create, self._list, self._delete = operations

    @classmethod
    def of_namespace(cls, transport: AsyncTransport, namespace: str) -> AsyncSigningSecrets:
        return cls(transport, _of(namespace), operations=("createSecret", "listSecrets", "deleteSecret"))

    async def create(self, *, secret: str | None = None, overlap: timedelta | None = None) -> CreatedSecret:
        """Create a secret, which is shown this once. The one before it stays valid for ``overlap``, a day by default.

        Where its answer was lost, ``Conflict`` (``secret_shown_once``): look at ``list`` then, and end by ``delete``
        what nobody knows.
        """
        body = bodies.body(bodies.SECRET, secret=secret, overlap=overlap)
        return await self._transport.send(changing(self._create, "POST", self._path, CreatedSecret, body))

    def list(self) -> AsyncIterator[SigningSecret]:
        """List the valid secrets, the oldest first."""
        return self._transport.items(self._list, self._path, SigningSecret)

    async def delete(self, secret_id: str) -> None:
        """End one at once."""
        await self._transport.send(removing(self._delete, f"{self._path}/{segment('secret_id', secret_id)}"))


def _of(name: str) -> str:
    return f"{_PATH}/{segment('namespace', name)}"
