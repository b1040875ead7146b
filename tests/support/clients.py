"""The Python client in both its forms, used by the same tests; and a transport to a handler in this process."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import wraps
from typing import Any

from anyio.from_thread import BlockingPortal, start_blocking_portal

from duetime_client import AsyncDuetime, Duetime

FORMS = ("blocking", "asynchronous")
Connect = Callable[..., Any]
"""Makes a client, closed at the end of the test, that is used as a ``Duetime`` is."""


@contextmanager
def connecting(form: str) -> Iterator[Connect]:
    made: list[Any] = []
    with start_blocking_portal() if form == "asynchronous" else nullcontext() as portal:

        def connect(url: str, **options: Any) -> Any:
            client: Any = Duetime(url, **options) if portal is None else Awaited(AsyncDuetime(url, **options), portal)
            made.append(client)
            return client

        try:
            yield connect
        finally:
            for client in made:
                client.close()


class Awaited:
    """An object of the asynchronous client that is waited for, so that tests need not."""

    def __init__(self, target: Any, portal: BlockingPortal) -> None:
        self._target = target
        self._portal = portal

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        if not callable(value):
            return self._wrapped(value)

        @wraps(value)
        def call(*arguments: Any, **options: Any) -> Any:
            return self._wrapped(value(*arguments, **options))

        return call

    def __repr__(self) -> str:
        return repr(self._target)

    def _wrapped(self, value: Any) -> Any:
        if inspect.iscoroutine(value):

            async def wait() -> Any:
                return await value

            return self._portal.call(wait)
        if inspect.isasyncgen(value):
            return self._pulled(value)
        if type(value).__module__.startswith("duetime_client.asynchronous"):
            return Awaited(value, self._portal)
        return value

    def _pulled(self, items: Any) -> Iterator[Any]:
        async def step() -> tuple[Any, ...]:
            try:
                return (await items.__anext__(),)
            except StopAsyncIteration:
                return ()

        try:
            while item := self._portal.call(step):
                yield item[0]
        finally:
            self._portal.call(items.aclose)
