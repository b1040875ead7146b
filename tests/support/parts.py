"""Stores some of whose operations are a test's own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from duetime.domain.errors import StoreUnavailable

T = TypeVar("T")

if TYPE_CHECKING:
    from duetime.stores.core.store import Store as _StandsForStore
else:
    _StandsForStore = object  # whose attributes are no obstacle to ``__getattr__``

PARTS = ("timers", "schedules", "leases", "catalogue", "calls", "outbox", "transfer")


class Overlay(_StandsForStore):
    """``target``, but for what is given."""

    def __init__(self, target: Any, **given: Any) -> None:
        self._target = target
        self.__dict__.update(given)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)


def overlaid(target: T, **given: Any) -> T:
    """``target``, but for what is given, as in ``overlaid(store, timers=overlaid(store.timers, put=put))``."""
    overlay: Any = Overlay(target, **given)
    has_all: T = overlay
    return has_all


class Intercepted(_StandsForStore):
    """``store``, whose operations are called as ``call(name, operation, *arguments, **named)``.

    ``name`` is that of a part and its operation, as in ``timers.put``; an operation of the store's own has its name
    alone.
    """

    def __init__(self, store: Any, call: Callable[..., Any], *, prefix: str = "") -> None:
        self._intercepted = store
        self._call = call
        self._prefix = prefix

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._intercepted, name)
        if name in PARTS:
            return Intercepted(value, self._call, prefix=f"{name}.")
        return partial(self._call, self._prefix + name, value) if callable(value) else value


class Outage(Intercepted):
    """``store``, one of whose operations fails while ``is_down``."""

    def __init__(self, store: Any, operation: str) -> None:
        super().__init__(store, self._operate)
        self._failing = operation
        self.is_down = False

    def _operate(self, name: str, operation: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        if self.is_down and name == self._failing:
            raise StoreUnavailable("down")
        return operation(*arguments, **named)
