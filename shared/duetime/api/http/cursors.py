"""Cursors as clients see them: opaque, and good for the one query that they were made for.

A token is the store's cursor and a MAC over it, the tenant whose key asked, and the query (kind of list, namespace,
filters; not the limit). All processes share the key through the store, so a token made by one is read by another.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Callable
from dataclasses import dataclass

from duetime.domain.errors import InvalidCursor
from duetime.domain.principals import Principal
from duetime.stores.core.catalogue import Catalogue
from duetime.stores.shared_keys import shared_key

_KEY_NAME = "cursor"
_MAC_BYTES = 16


@dataclass(frozen=True, slots=True)
class ListCursors:
    """The cursors of one query of one tenant. ``_mac`` makes the MAC of a store's cursor."""

    _mac: Callable[[bytes], bytes]

    def encode(self, store_cursor: str | None) -> str | None:
        """Return the token for ``store_cursor``; None stays None."""
        if store_cursor is None:
            return None
        raw = store_cursor.encode()
        return _to_text(self._mac(raw) + raw)

    def decode(self, token: str | None) -> str | None:
        """Return the store's cursor in ``token``. Raises ``InvalidCursor`` unless it was made for this query and
        tenant."""
        if token is None:
            return None
        try:
            joined = base64.b64decode(token.encode("ascii") + b"=" * (-len(token) % 4), altchars=b"-_", validate=True)
            mac, raw = joined[:_MAC_BYTES], joined[_MAC_BYTES:]
            # Bits beyond the last byte are no licence to change a token.
            if hmac.compare_digest(mac, self._mac(raw)) and _to_text(joined) == token:
                return raw.decode()
        except (binascii.Error, ValueError):
            pass
        raise InvalidCursor("cursor", "is not a cursor of this list and these filters")


class Cursors:
    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._key: bytes | None = None

    def of(self, principal: Principal | None, *query: object) -> ListCursors:
        """Return the cursors of a query, which JSON can write, by ``principal``."""
        tenant_id = None if principal is None else principal.tenant_id
        bound_to = json.dumps([tenant_id, query]).encode() + b"\0"
        return ListCursors(
            lambda raw: hmac.new(self._shared_key(), bound_to + raw, hashlib.sha256).digest()[:_MAC_BYTES]
        )

    def _shared_key(self) -> bytes:
        if self._key is None:
            self._key = shared_key(self._catalogue, _KEY_NAME)
        return self._key


def _to_text(joined: bytes) -> str:
    return base64.urlsafe_b64encode(joined).rstrip(b"=").decode()
