"""What can be changed of a namespace, for the API and the command line alike.

Each change is made on the revision that was read; when another one came first it is tried again on what that left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from secrets import token_bytes
from typing import Any

from duetime.app.revisions import Revisions
from duetime.delivery.encryption import SecretBox, SecretUnavailable
from duetime.domain.errors import (
    InvalidInput,
    NamespaceDeleting,
    NamespaceNotFound,
    NamespaceUnreadable,
    RevisionMismatch,
    SecretShownOnce,
    StoreUnavailable,
)
from duetime.domain.ids import check_namespace
from duetime.domain.namespaces import EncryptedSecret, Namespace, NamespaceState
from duetime.domain.principals import Principal, own_tenant
from duetime.domain.secrets import (
    NEW_SECRET_BYTES,
    check_can_rotate,
    parse_secret,
    rotated,
    secret_text,
    without_secret,
)
from duetime.stores.core.store import Store

_TRIES = 5


@dataclass(frozen=True, slots=True)
class NamespaceAccess:
    """Reads and changes namespaces at one instant.

    ``principal`` is who asks, None the command line and open mode: another tenant's namespace is one that does not
    exist. ``is_internal``: the name is one that Duetime made (``domain.tenants``); no client's word gets there.
    """

    store: Store
    principal: Principal | None
    now: datetime
    is_internal: bool = False

    def found(self, name: str) -> Namespace:
        """Return the namespace as it is now.

        Raises ``NamespaceNotFound``, also for what no client can name: internal ones; and ``NamespaceUnreadable``.
        """
        return readable(self.stored(name))

    def stored(self, name: str) -> Namespace:
        """Return what ``found`` does; of one that cannot be read, what is left of it."""
        namespace = self.store.catalogue.get_namespace(name) if self.is_internal or _is_name(name) else None
        if namespace is None:
            raise NamespaceNotFound(name)
        return visible(namespace, self.principal)

    def change(self, name: str, change: Callable[[Namespace], Namespace]) -> Namespace:
        """Store a namespace as ``change`` makes it of what is stored, and return it.

        Raises ``NamespaceNotFound``, ``NamespaceUnreadable``, ``StoreUnavailable``, and what ``change`` raises.
        """
        for _ in range(_TRIES):
            namespace = self.found(name)
            wanted = change(namespace)
            if wanted == namespace:
                return namespace
            stored = self.store.catalogue.update_namespace(wanted, if_revision=namespace.revision, now=self.now)
            if stored is not None:
                return stored
        raise StoreUnavailable(f"namespace {name!r} is being changed all the time")


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedSecret:
    """``text`` is ``whsec_...``: it can be read here and never again. ``previous`` ends with the overlap."""

    secret: EncryptedSecret
    text: str = field(repr=False)
    previous: EncryptedSecret | None


def put_namespace(
    access: NamespaceAccess,
    name: str,
    given: Mapping[str, Any],
    *,
    num_shards: int | None,
    dedicated: bool | None,
    default_num_shards: int,
    wanted: Revisions | None,
) -> tuple[Namespace, bool]:
    """Create a namespace, confirm it, or change its settings to those ``given``; return it and whether it is new.

    Shards that are None are those that it has, or the defaults of a new one. Raises ``NamespaceConflict`` when it
    exists with other shards or belongs to another tenant, and ``RevisionMismatch``.
    """
    catalogue, principal = access.store.catalogue, access.principal
    known = catalogue.get_namespace(name)
    if known is not None and principal is not None and known.tenant_id != principal.tenant_id:
        known = None  # nothing of it must show, not even in what is asked of the store below
    if wanted is not None and known is None:
        raise RevisionMismatch(f"namespace {name!r} does not exist in a revision that If-Match names")
    if num_shards is None:
        num_shards = known.num_shards if known else default_num_shards
    if dedicated is None:
        dedicated = known.dedicated if known else False
    # In open mode a namespace that exists may be any tenant's.
    tenant_id = known.tenant_id if known else own_tenant(principal)
    stored, is_new = catalogue.create_namespace(
        name, num_shards=num_shards, dedicated=dedicated, now=access.now, tenant_id=tenant_id
    )
    if given or wanted is not None:

        def change(namespace: Namespace) -> Namespace:
            check_revision(namespace, wanted)
            return with_settings(namespace, **given)

        stored = access.change(name, change)
    return stored, is_new


def check_revision(namespace: Namespace, wanted: Revisions | None) -> None:
    """Raise ``RevisionMismatch`` unless the namespace has a revision that is ``wanted``; None: any."""
    if wanted is not None and not wanted.match_strongly(namespace.revision):
        raise RevisionMismatch("the namespace has another revision than If-Match names")


def with_settings(namespace: Namespace, **given: Any) -> Namespace:
    return replace(namespace, settings=replace(namespace.settings, **given))


def create_secret(
    access: NamespaceAccess,
    box: SecretBox | None,
    name: str,
    *,
    secret_id: str,
    text: str | None = None,
    overlap_seconds: float,
) -> CreatedSecret:
    """Make ``text`` (``whsec_...``; None: a new one) the newest secret; its predecessor stays valid for the overlap.

    Raises ``InvalidInput``, ``NamespaceNotFound``, ``SecretRotationInProgress``, ``SecretUnavailable`` and
    ``StoreUnavailable``.
    """
    try:
        key = token_bytes(NEW_SECRET_BYTES) if text is None else parse_secret(text)
    except ValueError as error:
        raise InvalidInput("secret", str(error)) from None
    if box is None:
        raise SecretUnavailable(
            "there is no key to encrypt secrets with: DUETIME_KMS_KEY_ID or DUETIME_KEY_FILE sets one"
        )
    ciphertext: bytes | None = None

    def change(namespace: Namespace) -> Namespace:
        nonlocal ciphertext
        if any(secret.secret_id == secret_id for secret in namespace.secrets):
            raise SecretShownOnce
        check_can_rotate(namespace, access.now)
        if ciphertext is None:  # it may be a call to a key service: not for what is refused, and once
            ciphertext = box.encrypt(key, context=name)
        new = EncryptedSecret(secret_id, ciphertext, access.now)
        return rotated(namespace, new, overlap_seconds=overlap_seconds, now=access.now)

    *before, newest = access.change(name, change).secrets
    return CreatedSecret(secret=newest, text=secret_text(key), previous=before[-1] if before else None)


def delete_secret(access: NamespaceAccess, name: str, secret_id: str) -> None:
    """End a secret at once (``domain.secrets.without_secret``).

    Raises ``NamespaceNotFound``, ``SecretNotFound`` and ``StoreUnavailable``.
    """
    access.change(name, lambda namespace: without_secret(namespace, secret_id, now=access.now))


def readable(namespace: Namespace) -> Namespace:
    """Return ``namespace``; one that cannot be read raises ``NamespaceUnreadable``."""
    if namespace.unreadable is not None:
        raise NamespaceUnreadable(namespace.name)
    return namespace


def kept(namespace: Namespace) -> Namespace:
    """Return ``namespace``; one that is being deleted raises ``NamespaceDeleting``."""
    if namespace.state is NamespaceState.DELETING:
        raise NamespaceDeleting(namespace.name)
    return namespace


def visible(namespace: Namespace, principal: Principal | None) -> Namespace:
    """Return ``namespace``; one of another tenant than the principal's raises ``NamespaceNotFound``, as if it were
    not."""
    if principal is not None and namespace.tenant_id != principal.tenant_id:
        raise NamespaceNotFound(namespace.name)
    return namespace


def _is_name(name: str) -> bool:
    try:
        check_namespace(name)
    except ValueError:
        return False
    return True
