"""Marks encrypted secrets with a first byte that tells what encrypted them."""

from __future__ import annotations

from enum import IntEnum

from duetime.delivery.encryption import SecretUnavailable


class EncryptedBy(IntEnum):
    LOCAL_KEY = 1
    KMS = 2


_NAMES = {
    EncryptedBy.LOCAL_KEY: "a key file (DUETIME_KEY_FILE)",
    EncryptedBy.KMS: "a key of KMS (DUETIME_KMS_KEY_ID)",
}


def mark(ciphertext: bytes, by: EncryptedBy) -> bytes:
    return bytes([by]) + ciphertext


def unmark(marked: bytes, by: EncryptedBy) -> bytes:
    """Remove the mark. Raises ``SecretUnavailable`` if the secret is damaged or was encrypted otherwise."""
    if marked[:1] == bytes([by]):
        return marked[1:]
    other = next((name for kind, name in _NAMES.items() if marked[:1] == bytes([kind])), None)
    raise SecretUnavailable(
        f"the secret was encrypted with {other}, not with {_NAMES[by]}"
        if other
        else "the encrypted secret is damaged"
    )
