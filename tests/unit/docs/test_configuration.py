from __future__ import annotations

from duetime.runtime.settings import ENTRY_POINTS
from scripts.write_configuration import SECTIONS, TARGET, render


def test_the_document_is_what_the_models_say() -> None:
    assert TARGET.read_text(encoding="utf-8") == render(), "run: python -m scripts.write_configuration"


def test_every_entry_point_is_documented() -> None:
    assert {model for _, model in SECTIONS} == set(ENTRY_POINTS)
