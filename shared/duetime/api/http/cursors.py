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
import secrets

from duetime.domain.errors import InvalidCursor
from duetime.domain.principals import Principal
from duetime.stores.port.catalogue import Catalogue

_SECRET_NAME = "cursor"  # noqa: S105 (the name of a secret, not one)
_KEY_BYTES = 32
_MAC_BYTES = 16


class CursorCodec:
    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._key: bytes | None = None

    def encode(self, store_cursor: str | None, query: tuple[object, ...], principal: Principal | None) -> str | None:
        """The token for ``store_cursor``; None stays None."""
        if store_cursor is None:
            return None
        raw = store_cursor.encode()
        return _to_text(self._mac(raw, query, principal) + raw)

    def decode(self, token: str | None, query: tuple[object, ...], principal: Principal | None) -> str | None:
        """The store's cursor in ``token``. Raises ``InvalidCursor`` unless it was made for this query and tenant."""
        if token is None:
            return None
        try:
            joined = base64.b64decode(token.encode("ascii") + b"=" * (-len(token) % 4), altchars=b"-_", validate=True)
            mac, raw = joined[:_MAC_BYTES], joined[_MAC_BYTES:]
            # Bits beyond the last byte are no licence to change a token.
            if hmac.compare_digest(mac, self._mac(raw, query, principal)) and _to_text(joined) == token:
                return raw.decode()
        except (binascii.Error, ValueError):
            pass
        raise InvalidCursor("cursor", "is not a cursor of this list and these filters")

    def _mac(self, raw: bytes, query: tuple[object, ...], principal: Principal | None) -> bytes:
        if self._key is None:
            self._key = self._catalogue.secret(_SECRET_NAME, secrets.token_bytes(_KEY_BYTES))
        message = json.dumps([None if principal is None else principal.tenant_id, query]).encode() + b"\0" + raw
        return hmac.new(self._key, message, hashlib.sha256).digest()[:_MAC_BYTES]


def _to_text(joined: bytes) -> str:
    return base64.urlsafe_b64encode(joined).rstrip(b"=").decode()
