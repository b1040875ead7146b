"""API keys: their text form, and what is kept of one.

The text is ``dtk_<key id>_<secret><checksum>``: a prefix that scanners for leaked secrets can look for, the id that
the key is found by, 43 characters of base 62 that hold 256 random bits, and a CRC-32 of all before it in 6 more, by
which a mistyped key is told from a wrong one without a look into the store. Only the SHA-256 of the secret is kept;
why that is enough: docs/decisions/0011.
"""

from __future__ import annotations

import hmac
import re
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from zlib import crc32

from duetime.domain.principals import Principal, Role

KEY_PREFIX = "dtk_"
SECRET_BYTES = 32
MAX_KEY_NAME_CHARACTERS = 100
MAX_KEY_SECONDS = 10 * 366 * 86_400.0

_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_SECRET_CHARACTERS = 43
_CHECKSUM_CHARACTERS = 6
_KEY_ID = r"[a-z0-9-]{1,64}"
_ID = re.compile(_KEY_ID)
_TEXT = re.compile(rf"dtk_({_KEY_ID})_([0-9A-Za-z]{{{_SECRET_CHARACTERS}}})([0-9A-Za-z]{{{_CHECKSUM_CHARACTERS}}})")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """``name`` is for people. ``expires_at`` None: valid until it is deleted.

    ``role`` None: it cannot be read, and ``unreadable`` tells why, quoting nothing; such a key lets nobody in.
    """

    key_id: str
    tenant_id: str
    role: Role | None
    name: str = ""
    secret_hash: bytes = field(repr=False)
    created_at: datetime
    expires_at: datetime | None = None
    unreadable: str | None = None

    def is_expired(self, now: datetime) -> bool:
        return self.expires_at is not None and self.expires_at <= now

    def has_secret(self, secret: str) -> bool:
        """Compare in constant time."""
        return hmac.compare_digest(self.secret_hash, hash_of(secret))

    def principal(self) -> Principal:
        """Return who the key stands for. Only for a readable key."""
        assert self.role is not None
        return Principal(self.tenant_id, self.role, self.key_id)


def new_secret(random_bytes: bytes) -> str:
    """Return ``SECRET_BYTES`` random bytes as the secret of a key."""
    return _base62(int.from_bytes(random_bytes), _SECRET_CHARACTERS)


def hash_of(secret: str) -> bytes:
    """Return what is stored of a secret: its SHA-256, 32 bytes."""
    return sha256(secret.encode()).digest()


def is_key_id(text: str) -> bool:
    """Tell whether ``text`` can be the id of a key, so that it has to be looked up."""
    return _ID.fullmatch(text) is not None


def key_text(key_id: str, secret: str) -> str:
    """Return the key as it is shown once and sent with requests; ``parse_key`` reads it."""
    return f"{KEY_PREFIX}{key_id}_{secret}{_checksum(key_id, secret)}"


def parse_key(text: str) -> tuple[str, str] | None:
    """Return the id and the secret in ``text``; None when it is no API key."""
    match = _TEXT.fullmatch(text)
    if match is None or match[3] != _checksum(match[1], match[2]):
        return None
    return match[1], match[2]


def check_key_name(name: str) -> str:
    """Return ``name``; raise ``ValueError`` saying what a key may be named."""
    if len(name) > MAX_KEY_NAME_CHARACTERS:
        raise ValueError(f"must have at most {MAX_KEY_NAME_CHARACTERS} characters")
    if _CONTROL.search(name):
        raise ValueError("must not contain control characters or lone surrogates")
    return name


def _checksum(key_id: str, secret: str) -> str:
    return _base62(crc32(f"{KEY_PREFIX}{key_id}_{secret}".encode()), _CHECKSUM_CHARACTERS)


def _base62(number: int, characters: int) -> str:
    digits = []
    for _ in range(characters):
        number, digit = divmod(number, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits))
