"""Marks encrypted secrets with a first byte that tells what encrypted them."""

from __future__ import annotations

from enum import IntEnum

from duetime.delivery.sealing import SecretUnavailable


class SealedBy(IntEnum):
    LOCAL_KEY = 1
    KMS = 2


_NAMES = {SealedBy.LOCAL_KEY: "a key file (DUETIME_KEY_FILE)", SealedBy.KMS: "a key of KMS (DUETIME_KMS_KEY_ID)"}


def mark(sealed: bytes, by: SealedBy) -> bytes:
    return bytes([by]) + sealed


def unmark(marked: bytes, by: SealedBy) -> bytes:
    """Remove the mark. Raises ``SecretUnavailable`` if the secret is damaged or was encrypted otherwise."""
    if marked[:1] == bytes([by]):
        return marked[1:]
    other = next((name for kind, name in _NAMES.items() if marked[:1] == bytes([kind])), None)
    raise SecretUnavailable(
        f"the secret was sealed with {other}, not with {_NAMES[by]}" if other else "the sealed secret is damaged"
    )
