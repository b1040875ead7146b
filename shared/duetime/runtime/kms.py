"""Secrets encrypted by AWS KMS: the key never leaves the service, and each use of it is in CloudTrail.

A secret is at most 64 bytes, so it is encrypted by the key itself (4096 bytes at most) and not by a data key.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from duetime.delivery.encryption import SecretUnavailable
from duetime.runtime.ciphertexts import EncryptedBy, mark, unmark

if TYPE_CHECKING:
    from mypy_boto3_kms import KMSClient

_CONFIG: dict[str, Any] = {
    "connect_timeout": 1,
    "read_timeout": 3,
    "retries": {"mode": "standard", "total_max_attempts": 3},
}
"""Seconds. Callers try again: a client its request, the poller after a moment."""


class KmsSecretBox:
    """``delivery.encryption.SecretBox``: Encrypt and Decrypt with the context as ``{"namespace": ...}``."""

    def __init__(self, key_id: str, *, endpoint_url: str | None = None) -> None:
        """``key_id``: id, ARN or alias of a symmetric key. Contacts nothing yet."""
        self._key_id = key_id
        self._endpoint_url = endpoint_url
        self._client: KMSClient | None = None
        self._lock = threading.Lock()

    def encrypt(self, plain: bytes, *, context: str) -> bytes:
        answer = self._call("encrypt", Plaintext=plain, EncryptionContext={"namespace": context})
        return mark(answer["CiphertextBlob"], EncryptedBy.KMS)

    def decrypt(self, ciphertext: bytes, *, context: str) -> bytes:
        blob = unmark(ciphertext, EncryptedBy.KMS)
        plain: bytes = self._call("decrypt", CiphertextBlob=blob, EncryptionContext={"namespace": context})[
            "Plaintext"
        ]
        return plain

    def _call(self, operation: str, **parameters: Any) -> dict[str, Any]:
        try:
            from botocore.exceptions import BotoCoreError, ClientError
        except ImportError as error:
            raise SecretUnavailable(
                "encryption with KMS needs 'boto3', which is not installed: pip install 'duetime[dynamodb]'"
            ) from error
        try:
            answer: dict[str, Any] = getattr(self._connected(), operation)(KeyId=self._key_id, **parameters)
        # An error's text may quote the request and name the account: only what kind of error it is goes on.
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "unknown")
            raise SecretUnavailable(f"KMS refuses to {operation}: {code}") from None
        except (BotoCoreError, ValueError) as error:  # unreachable; no region, no credentials
            raise SecretUnavailable(f"KMS cannot be used: {type(error).__name__}") from None
        return answer

    def _connected(self) -> KMSClient:
        with self._lock:
            if self._client is None:
                import boto3
                from botocore.config import Config

                self._client = boto3.session.Session().client(
                    "kms", config=Config(**_CONFIG), endpoint_url=self._endpoint_url
                )
            return self._client
