"""What was logged, by action."""

from __future__ import annotations

import logging
from collections import Counter

import pytest


def actions(caplog: pytest.LogCaptureFixture, level: int = logging.NOTSET) -> Counter[str]:
    """How often each action was logged, at ``level`` or above."""
    return Counter(getattr(record, "action", "") for record in caplog.records if record.levelno >= level)
