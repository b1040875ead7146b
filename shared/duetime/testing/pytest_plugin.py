"""Fixtures for pytest. Installed with ``duetime[testing]``, they are there without a line of configuration."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from duetime.testing import InMemoryDuetime


@pytest.fixture
def duetime_start() -> datetime:
    """Return the start of virtual time. Override it in your own tests."""
    return datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def duetime(duetime_start: datetime) -> Iterator[InMemoryDuetime]:
    """Yield a Duetime of this test's own: ``.client``, ``.clock``, ``.receiver``."""
    from duetime.testing import in_memory  # all runs of pytest load this module, and few need the service

    with in_memory(duetime_start) as service:
        yield service
