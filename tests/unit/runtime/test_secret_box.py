"""Which key encrypts the secrets of which deployment."""

from __future__ import annotations

from pathlib import Path

import pytest

from duetime.domain.errors import InvalidSettings
from duetime.runtime.kms import KmsSecretBox
from duetime.runtime.settings import LocalSettings, PollerSettings
from duetime.runtime.tuning import KeySettings, LocalKeySettings
from duetime.runtime.wiring import make_secret_box


def made_file(settings: KeySettings, directory: Path) -> str:
    """The key file that is made when something is encrypted."""
    before = {*directory.rglob("*")}
    box = make_secret_box(settings)
    assert box is not None
    assert box.decrypt(box.encrypt(b"x", context="orders"), context="orders") == b"x"
    made = [path.relative_to(directory) for path in {*directory.rglob("*")} - before if path.is_file()]
    return ", ".join(map(str, made))


@pytest.mark.parametrize(
    ("store", "file"),
    [
        ("sqlite:///data/duetime.db", "data/duetime.key"),
        ("sqlite:///orders.db", "duetime.key"),
        ("sqlite://", ""),
        ("sqlite:///", ""),
        ("sqlite:///:memory:", ""),
    ],
)
def test_sqlite_has_the_key_beside_the_file(
    store: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert made_file(LocalSettings(store=store), tmp_path) == file


def test_an_absolute_path_stays_absolute(tmp_path: Path) -> None:
    assert made_file(LocalKeySettings(store=f"sqlite:///{tmp_path}/d/x.db"), tmp_path) == "d/duetime.key"


@pytest.mark.parametrize("store", ["sqlite://", "sqlite:///other.db", "dynamodb://timers"])
def test_a_key_file_that_is_given_counts(store: str, tmp_path: Path) -> None:
    assert made_file(LocalKeySettings(store=store, key_file=str(tmp_path / "my.key")), tmp_path) == "my.key"


@pytest.mark.parametrize("settings", [PollerSettings, LocalSettings])
def test_dynamodb_has_no_key_of_its_own(settings: type[KeySettings]) -> None:
    assert make_secret_box(settings(store="dynamodb://timers")) is None


@pytest.mark.parametrize("store", ["sqlite://", "dynamodb://timers"])
def test_kms_comes_first(store: str) -> None:
    assert isinstance(make_secret_box(LocalSettings(store=store, key_file="x", kms_key_id="alias/x")), KmsSecretBox)


def test_a_key_file_that_cannot_be_used_is_noticed_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "my.key"
    path.write_text("my password")
    path.chmod(0o644)
    with pytest.raises(InvalidSettings, match="can be read by others"):
        make_secret_box(LocalSettings(store="sqlite://", key_file=str(path)))
