"""Secrets encrypted by KMS, which moto plays."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import boto3
import pytest
from moto import mock_aws

from duetime.delivery.encryption import SecretUnavailable
from duetime.runtime.kms import KmsSecretBox

SECRET = b"thirty-two bytes of great secrecy"


ENVIRONMENT = {"AWS_DEFAULT_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}


@pytest.fixture(scope="module")
def key_id() -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch, mock_aws():
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        yield boto3.client("kms").create_key()["KeyMetadata"]["KeyId"]


def test_what_was_encrypted_can_be_decrypted(key_id: str) -> None:
    ciphertext = KmsSecretBox(key_id).encrypt(SECRET, context="orders")

    assert SECRET not in ciphertext
    assert KmsSecretBox(key_id).decrypt(ciphertext, context="orders") == SECRET


def test_the_context_is_the_namespace(key_id: str) -> None:
    ciphertext = KmsSecretBox(key_id).encrypt(SECRET, context="orders")

    blob, context = ciphertext[1:], {"namespace": "orders"}
    assert boto3.client("kms").decrypt(CiphertextBlob=blob, EncryptionContext=context)["Plaintext"] == SECRET
    with pytest.raises(SecretUnavailable, match="KMS refuses to decrypt: InvalidCiphertext"):
        KmsSecretBox(key_id).decrypt(ciphertext, context="invoices")


def test_what_a_key_file_encrypted_is_recognised(key_id: str) -> None:
    with pytest.raises(SecretUnavailable, match="DUETIME_KEY_FILE"):
        KmsSecretBox(key_id).decrypt(b"\x01anything", context="orders")


@pytest.mark.parametrize("ciphertext", [b"", b"\x07anything"])
def test_what_nothing_of_ours_encrypted_is_damaged(key_id: str, ciphertext: bytes) -> None:
    with pytest.raises(SecretUnavailable, match="damaged"):
        KmsSecretBox(key_id).decrypt(ciphertext, context="orders")


def test_an_unknown_key_is_a_refusal(key_id: str) -> None:
    with pytest.raises(SecretUnavailable, match="KMS refuses to encrypt: NotFoundException"):
        KmsSecretBox("00000000-0000-0000-0000-000000000000").encrypt(SECRET, context="orders")


def test_an_unreachable_service_is_said_so_without_the_secret(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("botocore.retries.standard.ExponentialBackoff.delay_amount", lambda self, context: 0)
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        box = KmsSecretBox("key", endpoint_url=f"http://127.0.0.1:{probe.getsockname()[1]}")
        with pytest.raises(SecretUnavailable, match="KMS cannot be used: EndpointConnectionError"):
            box.encrypt(SECRET, context="orders")
    assert SECRET.decode() not in caplog.text


def test_without_a_region_it_says_what_kind_of_error_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    with pytest.raises(SecretUnavailable, match="KMS cannot be used: NoRegionError"):
        KmsSecretBox("key").encrypt(SECRET, context="orders")
