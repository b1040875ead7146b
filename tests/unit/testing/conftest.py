from __future__ import annotations

from duetime.testing.pytest_plugin import duetime, duetime_start

__all__ = ["duetime", "duetime_start"]
