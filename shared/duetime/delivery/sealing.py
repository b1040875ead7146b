"""Keeping secrets unreadable where they are stored. What seals them is the runtime's (key file, KMS)."""

from __future__ import annotations

from typing import Protocol

from duetime.domain.errors import DuetimeError


class SecretUnavailable(DuetimeError):
    """A secret cannot be sealed or unsealed now: no key, another key, or the key service does not answer."""

    code = "secret_unavailable"


class SecretBox(Protocol):
    """Thread-safe; may block for a call to a key service. Both raise ``SecretUnavailable``."""

    def seal(self, plain: bytes, *, context: str) -> bytes:
        """``plain`` so that only ``unseal`` with the same ``context`` (the namespace) can read it."""
        ...

    def unseal(self, sealed: bytes, *, context: str) -> bytes: ...
