"""Dataclasses that are frozen for the type checker alone are otherwise as frozen ones are."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from duetime.domain.hot_dataclass import hot_dataclass


@hot_dataclass(frozen=True, slots=True, kw_only=True)
class Hot:
    number: int
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    number: int
    text: str = ""


def test_they_are_values_as_frozen_ones_are() -> None:
    assert Hot(number=1) == Hot(number=1) != Hot(number=2)
    assert {Hot(number=1), Hot(number=1)} == {Hot(number=1)}
    assert replace(Hot(number=1), text="a") == Hot(number=1, text="a")
    assert hash(Hot(number=1)) == hash(Frozen(number=1))


def test_there_is_no_room_for_anything_else() -> None:
    with pytest.raises(AttributeError):
        Hot(number=1).other = 2  # type: ignore[attr-defined]
