"""Keys that all processes share through the store: the first one that needs a key makes it."""

from __future__ import annotations

import secrets

from duetime.stores.core.catalogue import Catalogue

_KEY_BYTES = 32


def shared_key(catalogue: Catalogue, name: str) -> bytes:
    """Return the key ``name``, the same for everybody. It never changes: keep it for the life of the process."""
    return catalogue.secret(name, secrets.token_bytes(_KEY_BYTES))
