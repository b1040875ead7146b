"""All tests and fixtures of the suite, for ``from duetime.testing.contract.everything import *`` in a test module.

That module has a fixture ``subject`` of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from types import FunctionType

MODULES = (
    "life",
    "catalogue",
    "unreadable_catalogue",
    "tenants",
    "idempotency",
    "leases",
    "timers.put",
    "timers.change",
    "timers.rearm",
    "timers.answers",
    "timers.lists",
    "timers.due",
    "timers.wanted",
    "timers.record",
    "timers.escalations",
    "timers.races",
    "timers.resharding",
    "timers.unreadable",
    "timers.load",
    "schedules",
    "schedule_changes",
    "calls.apply",
    "calls.delete",
    "calls.lists",
    "calls.outbox",
    "calls.races",
    "calls.scheduled",
    "calls.tenants",
    "calls.unreadable",
    "calls.load",
)


def _tests_of(value: object) -> Iterator[FunctionType]:
    """Return the tests in what a module has under a name: a function, or the methods of a class."""
    if isinstance(value, FunctionType):
        yield value
    elif isinstance(value, type):
        yield from (each for each in vars(value).values() if isinstance(each, FunctionType))


for _module in ("fixtures", *MODULES):
    for _name, _value in vars(import_module(f"duetime.testing.contract.{_module}")).items():
        if _name.lower().startswith("test"):
            for _test in _tests_of(_value):
                vars(_test)[_module] = True  # so that ``-k timers.record`` selects it
        if not _name.startswith("_"):
            globals()[_name] = _value
