"""Encrypts secrets at rest. The runtime has the implementations (key file, KMS)."""

from __future__ import annotations

from typing import Protocol

from duetime.domain.errors import DuetimeError


class SecretUnavailable(DuetimeError):
    """A secret cannot be encrypted or decrypted now: no key, another key, or no response of the key service."""

    code = "secret_unavailable"


class SecretBox(Protocol):
    """Encrypts and decrypts. Thread-safe; may block for a call to a key service. Raises ``SecretUnavailable``."""

    def encrypt(self, plain: bytes, *, context: str) -> bytes:
        """Encrypt ``plain`` so that only ``decrypt`` with the same ``context`` (the namespace) can read it."""
        ...

    def decrypt(self, ciphertext: bytes, *, context: str) -> bytes: ...
