"""Signatures of callbacks (Standard Webhooks specification, https://www.standardwebhooks.com, scheme ``v1``)."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64encode


class Signer:
    """Signs with every key that is valid now, so that a receiver may know the old secret or the new one."""

    __slots__ = ("_keyed",)

    def __init__(self, keys: tuple[bytes, ...]) -> None:
        """``keys`` are the secrets' bytes: what follows ``whsec_``, decoded. One or more."""
        if not keys:
            raise ValueError("a signer needs a key")
        # Keyed once: a copy is cheaper than preparing a key for every callback.
        self._keyed = tuple(hmac.new(key, digestmod=hashlib.sha256) for key in keys)

    def __repr__(self) -> str:
        return f"Signer({len(self._keyed)} keys)"

    def signature(self, message_id: str, timestamp: int, body: bytes) -> str:
        """Return the value of ``webhook-signature``: ``v1,<base64>`` for each key. ``timestamp`` in seconds since
        1970."""
        head = f"{message_id}.{timestamp}.".encode()
        signatures = []
        for keyed in self._keyed:
            mac = keyed.copy()
            mac.update(head)
            mac.update(body)
            signatures.append(f"v1,{b64encode(mac.digest()).decode()}")
        return " ".join(signatures)
