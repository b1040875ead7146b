# Made of duetime/client/asynchronous by scripts/write_client.py: change that.
"""Namespaces, and the signing secrets of namespaces and of event webhooks."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from duetime.client import bodies
from duetime.client.blocking.transport import Transport
from duetime.client.models import CreatedSecret, Misfire, Namespace, NamespaceDeletion, SigningSecret
from duetime.client.requests import Request, changing, reading, removing, revision_header, segment
from duetime.client.values import UNSET, RetryPolicy, Unset

_PATH = "/v1/namespaces"


class Namespaces:
    """The namespaces of a tenant."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self, *, page_size: int = bodies.PAGE_ITEMS) -> Iterator[Namespace]:
        """In order of name, a page at a time."""
        return self._transport.items("listNamespaces", _PATH, Namespace, [("limit", str(page_size))])

    def get(self, name: str) -> Namespace:
        """Raises ``NotFound``."""
        return self._transport.send(reading("getNamespace", _of(name), Namespace))

    def put(
        self,
        name: str,
        *,
        num_shards: int | Unset = UNSET,
        dedicated: bool | Unset = UNSET,
        retry_policy: RetryPolicy | Unset | None = UNSET,
        max_in_flight: int | Unset | None = UNSET,
        rate_limit: float | Unset | None = UNSET,
        misfire: Misfire | str | Unset | None = UNSET,
        if_revision: int | None = None,
    ) -> Namespace:
        """Create a namespace, confirm it, or change its settings. What is not given stays, None clears a setting.

        ``num_shards`` and ``dedicated`` never change: other values than it has are a ``Conflict``.
        """
        body = bodies.patch(
            bodies.NAMESPACE,
            num_shards=num_shards,
            dedicated=dedicated,
            retry_policy=retry_policy,
            max_in_flight=max_in_flight,
            rate_limit=rate_limit,
            misfire=misfire,
        )
        request = changing(
            "putNamespace",
            "PUT",
            _of(name),
            Namespace,
            body,
            if_revision=if_revision,
        )
        return self._transport.send(request)

    def pause(self, name: str, *, reason: str | None = None, if_revision: int | None = None) -> Namespace:
        """Nothing of it is fired until it is resumed, within some seconds. Timers are created and changed as ever."""
        body = bodies.body(bodies.PAUSE, reason=reason)
        path = f"{_of(name)}/pause"
        request = changing("pauseNamespace", "POST", path, Namespace, body, if_revision=if_revision)
        return self._transport.send(request)

    def resume(self, name: str, *, if_revision: int | None = None) -> Namespace:
        """Fire again. What became due meanwhile is fired at once, or expires: as its ``misfire`` says."""
        path = f"{_of(name)}/resume"
        request = changing("resumeNamespace", "POST", path, Namespace, if_revision=if_revision)
        return self._transport.send(request)

    def delete(self, name: str, *, force: bool = False, if_revision: int | None = None) -> NamespaceDeletion:
        """One bounded step of its deletion: repeat it, after a second, until ``done``.

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
        return self._transport.send(request)


class SigningSecrets:
    """What callbacks of a namespace, or events, are signed with."""

    def __init__(self, transport: Transport, path: str, *, operations: tuple[str, str, str]) -> None:
        self._transport = transport
        self._path = f"{path}/secrets"
        self._create, self._list, self._delete = operations

    @classmethod
    def of_namespace(cls, transport: Transport, namespace: str) -> SigningSecrets:
        return cls(transport, _of(namespace), operations=("createSecret", "listSecrets", "deleteSecret"))

    def create(self, *, secret: str | None = None, overlap: timedelta | None = None) -> CreatedSecret:
        """A secret, which is shown this once. The one before it stays valid for ``overlap``, a day by default.

        Where its answer was lost, ``Conflict`` (``secret_shown_once``): look at ``list`` then, and end by ``delete``
        what nobody knows.
        """
        body = bodies.body(bodies.SECRET, secret=secret, overlap=overlap)
        return self._transport.send(changing(self._create, "POST", self._path, CreatedSecret, body))

    def list(self) -> Iterator[SigningSecret]:
        """Those that are valid, the oldest first."""
        return self._transport.items(self._list, self._path, SigningSecret)

    def delete(self, secret_id: str) -> None:
        """End one at once."""
        self._transport.send(removing(self._delete, f"{self._path}/{segment('secret_id', secret_id)}"))


def _of(name: str) -> str:
    return f"{_PATH}/{segment('namespace', name)}"
