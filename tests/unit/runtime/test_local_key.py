"""Secrets encrypted with a key of this machine: what can be decrypted, by whom, and how the key file comes to be."""

from __future__ import annotations

import os
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from duetime.delivery.encryption import SecretUnavailable
from duetime.domain.errors import InvalidSettings
from duetime.runtime.local_key import KeyFile, LocalSecretBox, ProcessKey

SECRET = b"thirty-two bytes of great secrecy"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "duetime.key"


def box(path: Path) -> LocalSecretBox:
    return LocalSecretBox(KeyFile(path))


class TestEncryption:
    def test_what_was_encrypted_can_be_decrypted(self) -> None:
        box = LocalSecretBox(ProcessKey())
        assert box.decrypt(box.encrypt(SECRET, context="orders"), context="orders") == SECRET

    def test_it_shows_nothing_and_never_looks_the_same(self) -> None:
        box = LocalSecretBox(ProcessKey())
        ciphertext = [box.encrypt(SECRET, context="orders") for _ in range(2)]
        assert ciphertext[0] != ciphertext[1]
        assert not any(SECRET[start : start + 4] in each for each in ciphertext for start in range(len(SECRET) - 3))

    def test_another_namespace_cannot_use_it(self) -> None:
        box = LocalSecretBox(ProcessKey())
        with pytest.raises(SecretUnavailable, match="damaged or belongs to another namespace"):
            box.decrypt(box.encrypt(SECRET, context="orders"), context="invoices")

    def test_another_key_says_that_it_is_another(self) -> None:
        ciphertext = LocalSecretBox(ProcessKey()).encrypt(SECRET, context="orders")
        with pytest.raises(SecretUnavailable, match=f"encrypted with another key .id {ciphertext[1:9].hex()}"):
            LocalSecretBox(ProcessKey()).decrypt(ciphertext, context="orders")

    def test_any_changed_or_missing_byte_is_noticed(self) -> None:
        box = LocalSecretBox(ProcessKey())
        ciphertext = box.encrypt(SECRET, context="orders")
        changed = [
            ciphertext[:at] + bytes([ciphertext[at] ^ 1]) + ciphertext[at + 1 :] for at in range(len(ciphertext))
        ]
        for damaged in [*changed, *(ciphertext[:length] for length in range(len(ciphertext))), ciphertext + b"\0"]:
            with pytest.raises(SecretUnavailable):
                box.decrypt(damaged, context="orders")

    def test_a_secret_of_kms_is_recognised(self) -> None:
        with pytest.raises(SecretUnavailable, match="DUETIME_KMS_KEY_ID"):
            LocalSecretBox(ProcessKey()).decrypt(b"\x02anything", context="orders")


class TestKeyFile:
    def test_it_is_made_when_it_is_first_needed(self, path: Path) -> None:
        made = box(path)
        assert not path.exists()

        ciphertext = made.encrypt(SECRET, context="orders")

        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert [each.name for each in path.parent.iterdir()] == [path.name]
        assert box(path).decrypt(ciphertext, context="orders") == SECRET

    def test_a_umask_makes_it_no_wider_and_no_umask_neither(self, path: Path) -> None:
        before = os.umask(0)
        try:
            box(path).encrypt(SECRET, context="orders")
        finally:
            os.umask(before)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600

    def test_many_at_once_make_one_key(self, path: Path) -> None:
        number = 8
        barrier = threading.Barrier(number, timeout=30)

        def encrypt(_: int) -> bytes:
            mine = box(path)  # each with a view of its own, as processes have
            barrier.wait()
            return mine.encrypt(SECRET, context="orders")

        with ThreadPoolExecutor(number) as executor:
            ciphertext = list(executor.map(encrypt, range(number), timeout=60))

        after = box(path)
        assert all(after.decrypt(each, context="orders") == SECRET for each in ciphertext)
        assert [each.name for each in path.parent.iterdir()] == [path.name]

    @pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644, 0o610])
    def test_one_that_others_may_use_is_refused(self, path: Path, mode: int) -> None:
        box(path).encrypt(SECRET, context="orders")
        path.chmod(mode)
        with pytest.raises(InvalidSettings, match=f"can be read by others .mode {mode:04o}.: chmod 600"):
            KeyFile(path)

    def test_one_that_only_its_owner_may_read_is_good(self, path: Path) -> None:
        ciphertext = box(path).encrypt(SECRET, context="orders")
        path.chmod(0o400)
        assert box(path).decrypt(ciphertext, context="orders") == SECRET

    @pytest.mark.parametrize(
        "text", [b"", b"duetime-key-1:", b"duetime-key-1:AAAA\n", b"x" * 44, b"\xff" * 40, b"x" * 10_000]
    )
    def test_another_file_is_refused_and_left_alone(self, path: Path, text: bytes) -> None:
        path.parent.mkdir()
        path.write_bytes(text)
        path.chmod(0o600)
        with pytest.raises(InvalidSettings, match=r"duetime\.key is no key file"):
            KeyFile(path)
        assert path.read_bytes() == text

    def test_a_directory_is_refused(self, path: Path) -> None:
        path.mkdir(parents=True)
        with pytest.raises(InvalidSettings, match="cannot be read: Is a directory"):
            KeyFile(path)

    def test_where_none_can_be_made_nothing_is_encrypted(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(InvalidSettings, match=r"file/duetime\.key cannot be read: Not a directory"):
            box(tmp_path / "file" / "duetime.key").encrypt(SECRET, context="orders")

    def test_one_that_another_process_made_meanwhile_is_found(self, path: Path) -> None:
        early = box(path)
        ciphertext = box(path).encrypt(SECRET, context="orders")

        assert early.decrypt(ciphertext, context="orders") == SECRET
        assert box(path).decrypt(early.encrypt(SECRET, context="orders"), context="orders") == SECRET

    def test_one_that_is_restored_is_read_again(self, path: Path) -> None:
        old_file = path.with_name("backup")
        running = box(path)
        ciphertext = running.encrypt(SECRET, context="orders")
        path.rename(old_file)
        box(path).encrypt(SECRET, context="orders")
        assert running.decrypt(ciphertext, context="orders") == SECRET  # it still knows the key
        restarted = box(path)
        with pytest.raises(SecretUnavailable, match="another key"):
            restarted.decrypt(ciphertext, context="orders")

        old_file.replace(path)

        assert restarted.decrypt(ciphertext, context="orders") == SECRET

    def test_without_it_a_secret_cannot_be_decrypted_and_no_new_one_is_made(self, path: Path) -> None:
        ciphertext = box(path).encrypt(SECRET, context="orders")
        path.unlink()
        with pytest.raises(SecretUnavailable, match=f"no key file {path}"):
            box(path).decrypt(ciphertext, context="orders")
        assert not path.exists()

    def test_one_that_becomes_unusable_makes_secrets_unavailable(self, path: Path) -> None:
        early = box(path)
        ciphertext = box(path).encrypt(SECRET, context="orders")
        path.chmod(0o644)
        with pytest.raises(SecretUnavailable, match="can be read by others"):
            early.decrypt(ciphertext, context="orders")
