from __future__ import annotations

import sys
from pathlib import Path

import certifi
import pytest

from duetime.delivery.trust import find_ca_file


def test_the_first_bundle_of_the_machine_is_taken(tmp_path: Path) -> None:
    second, third = tmp_path / "second.pem", tmp_path / "third.pem"
    second.touch()
    third.touch()
    assert find_ca_file([str(tmp_path / "first.pem"), str(second), str(third)]) == str(second)


def test_a_folder_is_no_bundle(tmp_path: Path) -> None:
    assert find_ca_file([str(tmp_path)]) == certifi.where()


def test_certifi_serves_a_machine_without_one() -> None:
    assert find_ca_file([]) == certifi.where()


def test_without_either_libcurl_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "certifi", None)
    assert find_ca_file([]) is None
