"""The contract suite of stores: tests of every promise of ``duetime.stores.port``. See docs/stores.md."""

from pkgutil import iter_modules

import pytest

pytest.register_assert_rewrite(*(f"{__name__}.{module.name}" for module in iter_modules(__path__)))

from duetime.testing.contract.subject import Subject  # noqa: E402  (the line above has to come first)

__all__ = ["Subject"]
