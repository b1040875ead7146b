"""Signing secrets of a namespace: their text form, and how they follow one another.

The text form is that of the Standard Webhooks specification: ``whsec_`` and the base64 of 24 to 64 bytes.
At most two are valid at a time: the newest, and its predecessor for an overlap in which receivers change over.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from dataclasses import replace
from datetime import datetime, timedelta

from duetime.domain.errors import SecretNotFound, SecretRotationInProgress
from duetime.domain.namespaces import EncryptedSecret, Namespace
from duetime.domain.times import format_instant, round_up

SECRET_PREFIX = "whsec_"  # noqa: S105  (not a secret)
MIN_SECRET_BYTES = 24
MAX_SECRET_BYTES = 64
NEW_SECRET_BYTES = 32
MAX_VALID_SECRETS = 2
DEFAULT_OVERLAP_SECONDS = 86_400.0
MAX_OVERLAP_SECONDS = 90 * 86_400.0


def secret_text(key: bytes) -> str:
    """Return ``whsec_`` and the base64 of ``key``: the form of the Standard Webhooks specification."""
    return SECRET_PREFIX + b64encode(key).decode()


def parse_secret(text: str) -> bytes:
    """Return the key in ``whsec_...``. Raises ``ValueError`` with a reason that shows nothing of ``text``."""
    encoded = text.removeprefix(SECRET_PREFIX)
    if encoded == text:
        raise ValueError(f"must begin with {SECRET_PREFIX}")
    try:
        key = b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"must be base64 with padding after {SECRET_PREFIX}") from None
    if not MIN_SECRET_BYTES <= len(key) <= MAX_SECRET_BYTES:
        raise ValueError(f"must hold {MIN_SECRET_BYTES} to {MAX_SECRET_BYTES} bytes")
    return key


def valid_secrets(namespace: Namespace, now: datetime) -> tuple[EncryptedSecret, ...]:
    """Return the secrets that sign callbacks at ``now``, oldest first."""
    return tuple(secret for secret in namespace.secrets if secret.is_valid(now))


def check_can_rotate(namespace: Namespace, now: datetime) -> None:
    """Raise ``SecretRotationInProgress`` while two secrets are valid."""
    valid = valid_secrets(namespace, now)
    if len(valid) >= MAX_VALID_SECRETS:
        ends = " and ".join(
            f"{secret.secret_id} until {format_instant(secret.expires_at)}" for secret in valid if secret.expires_at
        )
        raise SecretRotationInProgress(
            f"two secrets of namespace {namespace.name!r} are valid ({ends}): wait for an end, or delete one"
        )


def rotated(namespace: Namespace, new: EncryptedSecret, *, overlap_seconds: float, now: datetime) -> Namespace:
    """Return ``namespace`` with ``new`` as its newest secret; the one before it stays valid for the overlap.

    Expired secrets are left out. Raises ``SecretRotationInProgress``.
    """
    check_can_rotate(namespace, now)
    end = round_up(now + timedelta(seconds=overlap_seconds))
    ending = (
        replace(secret, expires_at=end if secret.expires_at is None else min(end, secret.expires_at))
        for secret in valid_secrets(namespace, now)
    )
    return replace(namespace, secrets=(*(secret for secret in ending if secret.is_valid(now)), new))


def without_secret(namespace: Namespace, secret_id: str, *, now: datetime) -> Namespace:
    """Return ``namespace`` without a valid secret; expired ones are left out as well.

    When the newest goes, the one that it was to replace stays valid without an end: the rotation is undone.
    Raises ``SecretNotFound``.
    """
    valid = valid_secrets(namespace, now)
    left = tuple(secret for secret in valid if secret.secret_id != secret_id)
    if len(left) == len(valid):
        raise SecretNotFound(namespace.name, secret_id)
    if left and all(secret.expires_at is not None for secret in left):
        left = (*left[:-1], replace(left[-1], expires_at=None))
    return replace(namespace, secrets=left)
