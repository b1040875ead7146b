"""Secrets sealed with a key of this machine: what can be unsealed, by whom, and how the key file comes to be."""

from __future__ import annotations

import os
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from duetime.delivery.sealing import SecretUnavailable
from duetime.domain.errors import InvalidSettings
from duetime.runtime.local_key import KeyFile, LocalSecretBox, ProcessKey

SECRET = b"thirty-two bytes of great secrecy"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "duetime.key"


def box(path: Path) -> LocalSecretBox:
    return LocalSecretBox(KeyFile(path))


class TestSealing:
    def test_what_was_sealed_can_be_unsealed(self) -> None:
        box = LocalSecretBox(ProcessKey())
        assert box.unseal(box.seal(SECRET, context="orders"), context="orders") == SECRET

    def test_it_shows_nothing_and_never_looks_the_same(self) -> None:
        box = LocalSecretBox(ProcessKey())
        sealed = [box.seal(SECRET, context="orders") for _ in range(2)]
        assert sealed[0] != sealed[1]
        assert not any(SECRET[start : start + 4] in each for each in sealed for start in range(len(SECRET) - 3))

    def test_another_namespace_cannot_use_it(self) -> None:
        box = LocalSecretBox(ProcessKey())
        with pytest.raises(SecretUnavailable, match="damaged or belongs to another namespace"):
            box.unseal(box.seal(SECRET, context="orders"), context="invoices")

    def test_another_key_says_that_it_is_another(self) -> None:
        sealed = LocalSecretBox(ProcessKey()).seal(SECRET, context="orders")
        with pytest.raises(SecretUnavailable, match=f"sealed with another key .id {sealed[1:9].hex()}"):
            LocalSecretBox(ProcessKey()).unseal(sealed, context="orders")

    def test_any_changed_or_missing_byte_is_noticed(self) -> None:
        box = LocalSecretBox(ProcessKey())
        sealed = box.seal(SECRET, context="orders")
        changed = [sealed[:at] + bytes([sealed[at] ^ 1]) + sealed[at + 1 :] for at in range(len(sealed))]
        for damaged in [*changed, *(sealed[:length] for length in range(len(sealed))), sealed + b"\0"]:
            with pytest.raises(SecretUnavailable):
                box.unseal(damaged, context="orders")

    def test_a_secret_of_kms_is_recognised(self) -> None:
        with pytest.raises(SecretUnavailable, match="DUETIME_KMS_KEY_ID"):
            LocalSecretBox(ProcessKey()).unseal(b"\x02anything", context="orders")


class TestKeyFile:
    def test_it_is_made_when_it_is_first_needed(self, path: Path) -> None:
        made = box(path)
        assert not path.exists()

        sealed = made.seal(SECRET, context="orders")

        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert [each.name for each in path.parent.iterdir()] == [path.name]
        assert box(path).unseal(sealed, context="orders") == SECRET

    def test_a_umask_makes_it_no_wider_and_no_umask_neither(self, path: Path) -> None:
        before = os.umask(0)
        try:
            box(path).seal(SECRET, context="orders")
        finally:
            os.umask(before)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600

    def test_many_at_once_make_one_key(self, path: Path) -> None:
        number = 8
        barrier = threading.Barrier(number, timeout=30)

        def seal(_: int) -> bytes:
            mine = box(path)  # each with a view of its own, as processes have
            barrier.wait()
            return mine.seal(SECRET, context="orders")

        with ThreadPoolExecutor(number) as executor:
            sealed = list(executor.map(seal, range(number), timeout=60))

        after = box(path)
        assert all(after.unseal(each, context="orders") == SECRET for each in sealed)
        assert [each.name for each in path.parent.iterdir()] == [path.name]

    @pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644, 0o610])
    def test_one_that_others_may_use_is_refused(self, path: Path, mode: int) -> None:
        box(path).seal(SECRET, context="orders")
        path.chmod(mode)
        with pytest.raises(InvalidSettings, match=f"can be read by others .mode {mode:04o}.: chmod 600"):
            KeyFile(path)

    def test_one_that_only_its_owner_may_read_is_good(self, path: Path) -> None:
        sealed = box(path).seal(SECRET, context="orders")
        path.chmod(0o400)
        assert box(path).unseal(sealed, context="orders") == SECRET

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

    def test_where_none_can_be_made_nothing_is_sealed(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(InvalidSettings, match=r"file/duetime\.key cannot be read: Not a directory"):
            box(tmp_path / "file" / "duetime.key").seal(SECRET, context="orders")

    def test_one_that_another_process_made_meanwhile_is_found(self, path: Path) -> None:
        early = box(path)
        sealed = box(path).seal(SECRET, context="orders")

        assert early.unseal(sealed, context="orders") == SECRET
        assert box(path).unseal(early.seal(SECRET, context="orders"), context="orders") == SECRET

    def test_one_that_is_restored_is_read_again(self, path: Path) -> None:
        old_file = path.with_name("backup")
        running = box(path)
        sealed = running.seal(SECRET, context="orders")
        path.rename(old_file)
        box(path).seal(SECRET, context="orders")
        assert running.unseal(sealed, context="orders") == SECRET  # it still knows the key
        restarted = box(path)
        with pytest.raises(SecretUnavailable, match="another key"):
            restarted.unseal(sealed, context="orders")

        old_file.replace(path)

        assert restarted.unseal(sealed, context="orders") == SECRET

    def test_without_it_a_secret_cannot_be_unsealed_and_no_new_one_is_made(self, path: Path) -> None:
        sealed = box(path).seal(SECRET, context="orders")
        path.unlink()
        with pytest.raises(SecretUnavailable, match=f"no key file {path}"):
            box(path).unseal(sealed, context="orders")
        assert not path.exists()

    def test_one_that_becomes_unusable_makes_secrets_unavailable(self, path: Path) -> None:
        early = box(path)
        sealed = box(path).seal(SECRET, context="orders")
        path.chmod(0o644)
        with pytest.raises(SecretUnavailable, match="can be read by others"):
            early.unseal(sealed, context="orders")
