"""A resolver that tests script, for ``CurlSender(resolve=...)``."""

from __future__ import annotations

import threading
from collections.abc import Sequence


class Resolver:
    """Names that are unknown, or are given no addresses, cannot be resolved. Thread-safe.

    ``held`` names wait for ``release``.
    """

    def __init__(self, **addresses: Sequence[str]) -> None:
        self.calls: list[str] = []
        self._changed = threading.Condition()
        self._addresses: dict[str, Sequence[str]] = {}
        self._held: set[str] = set()
        for label, found in addresses.items():
            self.set(f"{label}.test", *found)

    def set(self, host: str, *addresses: str) -> None:
        with self._changed:
            self._addresses[host] = addresses

    def hold(self, host: str) -> None:
        with self._changed:
            self._held.add(host)

    def release(self, host: str) -> None:
        with self._changed:
            self._held.discard(host)
            self._changed.notify_all()

    def wait_for_calls(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.calls) >= count, 15), f"only {self.calls}"

    def __call__(self, host: str, port: int) -> Sequence[str]:
        with self._changed:
            self.calls.append(host)
            self._changed.notify_all()
            self._changed.wait_for(lambda: host not in self._held, 60)
            found = self._addresses.get(host, ())
        if not found:
            raise OSError("not known")
        return found
