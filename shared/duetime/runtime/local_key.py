"""Secrets encrypted with a key of this machine: one in a file, or one that lives as long as the process.

AES-256-GCM with a random nonce. Stored: the mark, 8 bytes that tell the key, 12 of nonce, and the text with its tag.
The context is authenticated with it, so a secret that is moved to another namespace cannot be decrypted there.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
import threading
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from duetime.delivery.encryption import SecretUnavailable
from duetime.domain.errors import InvalidSettings
from duetime.runtime.ciphertexts import EncryptedBy, mark, unmark
from duetime.stores import private_files

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES = 32
_KEY_ID_BYTES = 8
_NONCE_BYTES = 12
_PREFIX = "duetime-key-1:"
_MAX_FILE_BYTES = 4096


class KeySource(Protocol):
    def current(self) -> bytes:
        """Return the key to encrypt with; made when there is none yet."""
        ...

    def find(self, key_id: bytes) -> bytes | None:
        """Return the key with this id, if it is at hand."""
        ...


class LocalSecretBox:
    """``delivery.encryption.SecretBox`` with keys from ``source``. Raises ``SecretUnavailable``."""

    def __init__(self, source: KeySource) -> None:
        self._source = source

    def encrypt(self, plain: bytes, *, context: str) -> bytes:
        key = self._source.current()
        key_id, nonce = key_id_of(key), secrets.token_bytes(_NONCE_BYTES)
        return mark(key_id + nonce + _cipher(key).encrypt(nonce, plain, context.encode()), EncryptedBy.LOCAL_KEY)

    def decrypt(self, ciphertext: bytes, *, context: str) -> bytes:
        from cryptography.exceptions import InvalidTag

        rest = unmark(ciphertext, EncryptedBy.LOCAL_KEY)
        key_id, nonce = rest[:_KEY_ID_BYTES], rest[_KEY_ID_BYTES:][:_NONCE_BYTES]
        key = self._source.find(key_id)
        if key is None:
            raise SecretUnavailable(f"the secret was encrypted with another key (id {key_id.hex()})")
        try:
            return _cipher(key).decrypt(nonce, rest[_KEY_ID_BYTES + _NONCE_BYTES :], context.encode())
        except (InvalidTag, ValueError):
            raise SecretUnavailable("the encrypted secret is damaged or belongs to another namespace") from None


def _cipher(key: bytes) -> AESGCM:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        raise SecretUnavailable(
            "encryption with a key file needs 'cryptography', which is not installed: pip install 'duetime[local]'"
        ) from error
    return AESGCM(key)


def key_id_of(key: bytes) -> bytes:
    """Return what tells keys apart, and tells nothing of the key."""
    return hashlib.sha256(b"duetime key id\0" + key).digest()[:_KEY_ID_BYTES]


class ProcessKey:
    """A key that lives as long as this object: for stores that do not live longer."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(KEY_BYTES)

    def current(self) -> bytes:
        return self._key

    def find(self, key_id: bytes) -> bytes | None:
        return self._key if key_id == key_id_of(self._key) else None


class KeyFile:
    """The key in a file of mode 0600 or stricter, made when it is first needed. Thread-safe.

    It is read again when a secret was encrypted with another key than the one that is known: the file may have been
    made or restored by somebody else meanwhile.
    """

    def __init__(self, path: Path) -> None:
        """Read the file, if it is there. Raises ``InvalidSettings`` when the file exists and cannot be used."""
        self._path = path
        self._lock = threading.Lock()
        self._key = self._read()

    def current(self) -> bytes:
        with self._lock, _as_unavailable():
            if self._key is None:
                self._key = self._read() or self._make()
            return self._key

    def find(self, key_id: bytes) -> bytes | None:
        with self._lock, _as_unavailable():
            if self._key is None or key_id_of(self._key) != key_id:
                self._key = self._read()
            if self._key is None:
                raise SecretUnavailable(
                    f"there is no key file {self._path}, without which secrets cannot be decrypted"
                )
            return self._key if key_id_of(self._key) == key_id else None

    def _read(self) -> bytes | None:
        """Return the key; None when there is no file."""
        try:
            with self._path.open("rb") as file:
                status = os.fstat(file.fileno())
                text = file.read(_MAX_FILE_BYTES + 1) if stat.S_ISREG(status.st_mode) else b""
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InvalidSettings(f"the key file {self._path} cannot be read: {error.strerror}") from error
        if stat.S_IMODE(status.st_mode) & 0o077:
            raise InvalidSettings(
                f"the key file {self._path} can be read by others (mode {stat.S_IMODE(status.st_mode):04o}): "
                f"chmod 600 {self._path}"
            )
        key = _parse(text)
        if key is None:
            raise InvalidSettings(f"{self._path} is no key file of Duetime")
        return key

    def _make(self) -> bytes:
        """Return a new key in the file, or the one of whoever was faster.

        The file appears whole and under its name at once: it is written under another name, made durable, and
        linked, which fails when the name is taken.
        """
        key = secrets.token_bytes(KEY_BYTES)
        draft = self._path.with_name(f".{self._path.name}.{secrets.token_hex(8)}")
        try:
            private_files.make_folder(self._path.parent)
            try:
                _write_durably(draft, f"{_PREFIX}{b64encode(key).decode()}\n".encode())
                self._path.hardlink_to(draft)
            finally:
                draft.unlink(missing_ok=True)
            _make_durable(self._path.parent)
        except FileExistsError:
            found = self._read()
            if found is None:
                raise SecretUnavailable(f"the key file {self._path} comes and goes") from None
            return found
        except OSError as error:
            raise SecretUnavailable(f"the key file {self._path} cannot be created: {error.strerror}") from error
        return key


def _parse(text: bytes) -> bytes | None:
    try:
        encoded = text.decode("ascii").strip()
        key = b64decode(encoded.removeprefix(_PREFIX), validate=True)
    except ValueError:
        return None
    return key if encoded.startswith(_PREFIX) and len(key) == KEY_BYTES else None


def _write_durably(path: Path, text: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "wb") as file:  # noqa: PTH123  (it is a descriptor)
        file.write(text)
        file.flush()
        os.fsync(descriptor)


def _make_durable(directory: Path) -> None:
    """Make a new name in the directory durable: secrets must not outlive the key that they are encrypted with."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _as_unavailable() -> Iterator[None]:
    """Raise ``SecretUnavailable`` for a file that has become unusable while the process runs."""
    try:
        yield
    except InvalidSettings as error:
        raise SecretUnavailable(error.message) from error
