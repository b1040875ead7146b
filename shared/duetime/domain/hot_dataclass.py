"""Frozen dataclasses that each timer needs some of. The interpreter makes a frozen one three times as slowly."""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["hot_dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass as hot_dataclass
else:
    from dataclasses import dataclass

    def hot_dataclass(*, frozen, **options):
        """Make a ``dataclass`` that is frozen for the type checker alone."""
        return dataclass(unsafe_hash=frozen, **options)
