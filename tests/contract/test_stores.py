"""The contract suite, on every store of ``conftest.STORES``."""

from duetime.testing.contract.everything import *  # noqa: F403
