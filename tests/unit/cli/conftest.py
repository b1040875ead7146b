from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """Commands set up logging for their whole process; here that is the test run's."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture(autouse=True)
def _without_settings() -> Iterator[None]:
    """Commands warn of variables that are no settings, such as those that name the servers of a test run."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("DUETIME_")]:
            patch.delenv(name)
        yield
